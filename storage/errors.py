"""Every error of the database, split by what the reader must do.

    StorageError
    ├── DatabaseUnavailable  wait, or mend what the message names: locked, unreachable, full, deleted
    ├── DamagedDatabase      restore a backup: the file is not a sound database
    ├── RefusedByDatabase    read the message: a privilege is missing, or a constraint is broken
    ├── BadDatabaseUrl       edit the setting
    ├── ForeignDatabase      choose another database: this one holds somebody else's tables
    ├── SchemaTooNew         upgrade this program; nothing was written
    ├── SchemaTooOld         run `foreshock db upgrade`
    └── ReadOnlyStore        open the store for writing

Messages hold the path, or the URL without its password, and never a stored value.
"""

from __future__ import annotations


class StorageError(Exception):
    """The root: no other error of the database leaves this package."""


class DatabaseUnavailable(StorageError):
    """It cannot be reached or written at the moment; what was asked for was not done."""


class DamagedDatabase(StorageError):
    """The bytes are not a sound database: no waiting will mend them."""


class RefusedByDatabase(StorageError):
    """It understood and said no; asking again gives the same answer."""


class BadDatabaseUrl(StorageError):
    """The URL cannot be understood, or names a database that is not supported."""


class ForeignDatabase(StorageError):
    """It holds tables of our names that we did not make."""


class SchemaTooNew(StorageError):
    """A newer version of the program has migrated it."""


class SchemaTooOld(StorageError):
    """It must be migrated first, and this was not allowed to."""


class ReadOnlyStore(StorageError):
    """A store that was opened for reading was asked to write."""
