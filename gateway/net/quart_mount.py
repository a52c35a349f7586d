"""A Quart application as a part of ours, without quart-trio's haste: it leaves a response before the server is done.

quart-trio 0.12 cancels a request when `receive` says that the client is gone, and hypercorn 0.18 says so in the middle
of sending a response's end: the connection is then neither closed, though the client asked for it, nor given its
keep-alive timeout. So that news waits until the end has been sent. Nothing is shielded: a stop can still cancel it all.

Left to whoever mounts: the lifespan (the door speaks none), `response.timeout = None` on streams (Quart ends a response
after 60 s), and a route's own limits. WebSockets pass as they are; their close codes do not reach a Quart handler.
"""

import trio

from gateway.net.http1.app_call import App, AsgiScope, Message, Receive, Send


def mount(quart: App) -> App:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await quart(scope, receive, send)
            return
        ending, ended = False, trio.Event()

        async def receive_later() -> Message:
            message = await receive()
            if ending and message["type"] == "http.disconnect":
                await ended.wait()
            return message

        async def send_to_the_end(message: Message) -> None:
            nonlocal ending
            ending = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)
            if ending:
                ended.set()

        await quart(scope, receive_later, send_to_the_end)

    return app
