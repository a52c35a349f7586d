"""The ES module with which pages make and use passkeys. Features with such pages serve it at an address of theirs."""

from pathlib import Path

PASSKEY_SCRIPT = Path(__file__).with_name("passkey.js")
