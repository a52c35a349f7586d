"""The section `[echo.s3]`: the bucket that presigned uploads go to, and the limits of what we ask it."""

import re
from dataclasses import dataclass, field
from typing import Literal

_ENDPOINT = re.compile(r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9.-]{1,61}[a-z0-9])")
_REGION = re.compile(r"[a-z0-9-]{1,64}")
_CREDENTIAL = re.compile(r"[\x21-\x7e]{1,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    endpoint: str  # such as https://s3.eu-central-1.amazonaws.com, without a path
    bucket: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)  # it is in no dump of the settings
    region: str = "us-east-1"  # as the service wants it signed; many that are not AWS take any
    addressing: Literal["path", "virtual"] = "path"  # ENDPOINT/BUCKET/KEY, or BUCKET.ENDPOINT/KEY
    ca_file: str | None = None  # PEM, of whoever vouches for the endpoint; None: those that the system trusts
    # ---- what is on its way
    pending_max: int = 10_000  # URLs that have not ended, of all projects; the next one is 503 `overloaded`
    look_s: float = 2.0  # between two looks for one upload
    looks_max: int = 8  # requests to the bucket at a time; the next look waits for one of them
    answer_s_max: float = 10.0  # for an answer of the bucket to begin or go on; then it counts as unreachable
    fetch_s_max: float = 300.0  # for one object to be read; then it is begun again
    reachable_s: float = 5.0  # for which a good answer of the bucket is good, before the next URL is given out

    def __post_init__(self) -> None:
        if _ENDPOINT.fullmatch(self.endpoint) is None:
            raise ValueError("echo.s3.endpoint is an address in lower case, such as https://s3.example, without a path")
        if _BUCKET.fullmatch(self.bucket) is None:
            raise ValueError("echo.s3.bucket is the name of a bucket")
        if _REGION.fullmatch(self.region) is None:
            raise ValueError("echo.s3.region is a name such as eu-central-1")
        if not all(map(_CREDENTIAL.fullmatch, (self.access_key, self.secret_key))):
            raise ValueError("echo.s3.access_key and echo.s3.secret_key are text without spaces")
        if min(self.pending_max, self.looks_max) < 1 or min(self.look_s, self.answer_s_max, self.fetch_s_max) <= 0:
            raise ValueError("the limits of echo.s3 are more than nothing")
