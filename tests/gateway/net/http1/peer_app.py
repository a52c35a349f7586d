"""One small application under every server that is compared: it says what it took the request for."""

from gateway.net.http1.app_call import AsgiScope, Receive, Send


async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
    assert scope["type"] == "http"
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    said = f"<{scope['method']} {scope['path']} {body.decode('latin-1')}>".encode("latin-1", "replace")
    headers = [(b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})
