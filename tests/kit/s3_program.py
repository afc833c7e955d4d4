"""The program of `s3_server`: localbucket, which must not store what did not arrive completely. Run as a script."""

import localbucket  # type: ignore[import-untyped]


class Handler(localbucket.S3Handler):  # type: ignore[misc]
    """S3 answers a body that ends too early with IncompleteBody; localbucket would store it."""

    def _read_body(self) -> bytes:
        body: bytes = super()._read_body()
        if len(body) < int(self.headers.get("Content-Length") or 0):
            raise localbucket.S3Error(localbucket.HTTPStatus.BAD_REQUEST, "IncompleteBody", "The body ended too early.")
        return body


if __name__ == "__main__":
    localbucket.S3Handler = Handler
    localbucket.main()
