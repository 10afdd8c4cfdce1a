"""/api/v1: one operation a handler, with its OpenAPI description made from it."""
