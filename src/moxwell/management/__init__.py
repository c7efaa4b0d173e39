"""The management cluster that ``moxwell bootstrap`` makes: its objects, installation and move."""
