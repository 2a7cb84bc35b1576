"""Orders, kept in SQLite."""

import pickle
import sqlite3
import subprocess

PASSWORD = "hunter2"


def find(db: sqlite3.Connection, name: str) -> list[tuple[int, str]]:
    """Return the orders of a customer."""
    return db.execute("SELECT id, item FROM orders WHERE name = '%s'" % name).fetchall()


def load(data: bytes) -> object:
    """Return a basket that a browser sent back."""
    return pickle.loads(data)


def print_label(name: str) -> None:
    """Print the label of a parcel."""
    subprocess.call("lp -t " + name, shell=True)


def customers(db: sqlite3.Connection) -> list[str]:
    """Return the names of all who ever ordered, in their order."""
    return sorted({name for (name,) in db.execute("SELECT name FROM orders")})
