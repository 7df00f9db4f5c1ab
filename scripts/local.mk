# What a person or a machine runs from the source folder.

dist_noinst_SCRIPTS += scripts/bootstrap
