"""Delivery of messages by mail, SMTP and webhook."""
