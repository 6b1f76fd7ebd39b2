"""A store: everything in one SQLite table."""

import os
import sqlite3

from hardpoint_plugin import Store, errors, serve


class SQLite(Store):
    name, version = "sqlite", "1.0.0"
    defaults = {"cacheBytes": 16 << 20}
    survives_process_death = True  # a commit is in the page cache

    @classmethod
    def validate(cls, config):
        if config["cacheBytes"] < 1 << 20:
            raise ValueError(f"cacheBytes is {config['cacheBytes']}, it must be at least 1048576")

    def open(self):
        self.db = sqlite3.connect(os.path.join(self.dir, "log.db"), isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")  # commits do not wait for the disk, sync does
        self.db.execute(f"PRAGMA cache_size = -{self.config['cacheBytes'] >> 10}")
        self.db.execute("CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID")

    def apply(self, operations):
        try:
            self.db.execute("BEGIN")
            for op in operations:
                if len(op) == 2:
                    self.db.execute("INSERT OR REPLACE INTO kv VALUES (?, ?)", op)
                else:
                    self.db.execute("DELETE FROM kv WHERE k >= ? AND k < ?", op[:2])
            self.db.execute("COMMIT")
        except sqlite3.Error as e:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            if "full" in str(e):
                raise errors.Full(f"storage is full: {e}") from None
            raise

    def get(self, key):
        row = self.db.execute("SELECT v FROM kv WHERE k = ?", (key,)).fetchone()
        return row and row[0]

    def scan(self, start, end, reverse):
        order = "DESC" if reverse else "ASC"
        return self.db.execute(f"SELECT k, v FROM kv WHERE k >= ? AND k < ? ORDER BY k {order}", (start, end))

    def sync(self):
        busy, _, _ = self.db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        if busy:
            raise OSError("the log of SQLite was busy and is not on the disk")

    def close(self):
        self.db.close()


if __name__ == "__main__":
    serve(SQLite)
