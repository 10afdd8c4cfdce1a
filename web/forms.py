"""A form as our pages send it: URL-encoded, each field once."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from starlette.requests import Request

Form = Mapping[str, str]
MOST_FIELDS = 50


async def read(request: Request) -> Form:
    """The fields, the first of each name; none where the body is no form."""
    kind = request.headers.get("content-type", "")
    if not kind.startswith("application/x-www-form-urlencoded"):
        return {}
    text = (await request.body()).decode("utf-8", "replace")
    try:
        fields = urllib.parse.parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:  # too many fields
        return {}
    return {name: values[0] for name, values in fields.items()}
