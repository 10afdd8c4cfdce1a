"""`probing-ctl`: one file per group of commands, in folders by what the commands are about."""
