"""Tasks that send: the mail queue, notices to operators, mails to owners."""
