"""Handing a message over: mail, SMTP, webhook."""
