"""Keeps secrets of the environment out of what a run leaves: withholds, redacts, masks.

nsys stores the environment of each process it sees (2023.4.4: also that of every child, among the
strings), so a secret stays out of a report only if the traced program never gets it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REDACTED = "[redacted]"
SECRET_WORDS = re.compile(
    r"(?:^|_)(?:TOKEN|SECRETS?|PASS|PASSWD|PASSPHRASE|PWD|PAT|CREDENTIALS?|KEYS?|AUTH"
    r"|AUTHORIZATION|COOKIE|DSN)(?:_|$)",
    re.IGNORECASE,
)
SECRET_PARTS = re.compile(r"SECRET|PASSWORD|PASSWD|APIKEY|CREDENTIAL|TOKEN$", re.IGNORECASE)
NEVER_SECRET = frozenset({"PWD", "OLDPWD"})
# A URL with a password in it, whatever the variable is called.
PASSWORD_IN_URL = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
SHORTEST = 8  # shorter values stand in files by chance
REFERENCE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Environment:
    """The environment that a tool and its target get.

    `withheld` are names of secret-looking variables that they do not get; `secrets` are the secret
    values that prof knows of, to be kept out of its files; `chosen` are names from the recipe.
    """

    variables: dict[str, str]
    withheld: tuple[str, ...]
    secrets: tuple[str, ...]
    chosen: tuple[str, ...] = ()

    def redact(self, text: str) -> str:
        """Return `text` without any of the secret values."""
        for secret in self.secrets:
            text = text.replace(secret, REDACTED)
        return text

    def redact_all(self, value: Any) -> Any:
        """Return plain data (lists, mappings, text) without any of the secret values."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {self.redact_all(k): self.redact_all(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.redact_all(item) for item in value]
        return value

    def shown(self) -> dict[str, str]:
        """Return the recipe's variables for a record: secret-looking values redacted."""
        return {
            name: REDACTED
            if looks_secret(name, self.variables[name])
            else self.redact(self.variables[name])
            for name in self.chosen
        }


def choose_environment(user: Mapping[str, str], recipe: Mapping[str, str]) -> Environment:
    """Return the user's environment without secret-looking variables, and the recipe's on top.

    `${NAME}` in a recipe's value is taken from the user's environment: that is how a target gets a
    token without it standing in the recipe.
    """
    secret = {name: value for name, value in user.items() if looks_secret(name, value)}
    chosen = {
        name: REFERENCE.sub(lambda match: user.get(match[1], ""), value)
        for name, value in recipe.items()
    }
    passed = [value for name, value in chosen.items() if looks_secret(name, value)]
    values = {value for value in (*secret.values(), *passed) if len(value) >= SHORTEST}
    return Environment(
        variables={n: v for n, v in user.items() if n not in secret} | chosen,
        withheld=tuple(sorted(set(secret) - set(chosen))),
        # Longest first, so that no secret is cut by one that is a part of it.
        secrets=tuple(sorted(values, key=lambda value: (-len(value), value))),
        chosen=tuple(chosen),
    )


def looks_secret(name: str, value: str) -> bool:
    """Tell whether a variable looks like a secret; numbers, switches and existing paths do not."""
    if PASSWORD_IN_URL.search(value):
        return True
    if name in NEVER_SECRET or not (SECRET_WORDS.search(name) or SECRET_PARTS.search(name)):
        return False
    plain = value.lower() in {"", "true", "false", "yes", "no", "on", "off", "none"}
    number = re.fullmatch(r"[\d.]+", value) is not None and len(value) < 12
    path = value.startswith(("/", "~", "./")) and os.path.exists(os.path.expanduser(value))
    return not (plain or number or path)


def mask_file(path: Path, secrets: tuple[str, ...]) -> int:
    """Overwrite each secret in a file with as many asterisks; return how many there were.

    The layout of binary files stays as it is: nsys 2023.4.4 reads a masked report, and SQLite keeps
    no checksums.
    """
    if not secrets or not path.is_file() or path.stat().st_size == 0:
        return 0
    found = 0
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as content:
        for secret in secrets:
            needle = secret.encode()
            at = content.find(needle)
            while at >= 0:
                content[at : at + len(needle)] = b"*" * len(needle)
                found += 1
                at = content.find(needle, at + len(needle))
    return found


def drop_environment(sqlite: Path) -> int:
    """Delete the recorded environment from an exported trace; return the number of rows.

    nsys before `--discard-environment` keeps it in TARGET_INFO_SYSTEM_ENV and META_DATA_CAPTURE.
    """
    conditions = {
        "TARGET_INFO_SYSTEM_ENV": "name LIKE '%Environment%'",
        "META_DATA_CAPTURE": "name LIKE '%ENVIRONMENT_VARIABLE%'",
    }
    dropped = 0
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        # Deleted rows are overwritten, not just unlinked, and never copied to a journal file.
        database.execute("PRAGMA secure_delete = ON")
        database.execute("PRAGMA journal_mode = MEMORY")
        for table, condition in conditions.items():
            with contextlib.suppress(sqlite3.OperationalError):  # this version has no such table
                dropped += database.execute(f'DELETE FROM "{table}" WHERE {condition}').rowcount
        database.commit()
    return dropped
