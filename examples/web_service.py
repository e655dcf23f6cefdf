"""A web service that sends and consumes messages, with FastAPI.

    pip install . fastapi uvicorn                    # in a clone
    sparrowmq up                                     # in another terminal
    uvicorn examples.web_service:app
    curl localhost:8000/orders -H 'content-type: application/json' -d '{"id": "o-1", "amount": 12}'
    curl localhost:8000/bills/o-1?wait_s=5

One producer serves all requests: it is made when the service starts. On SIGTERM uvicorn ends the
requests, then `lifespan` goes on after its `yield`, and the consumer finishes what it has begun.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel

from sparrowmq import ClientError, Message, MessageExt, Producer, PushConsumer


class Order(BaseModel):
    id: str
    amount: int


billed: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
"""In the place of a database."""


async def bill(message: MessageExt) -> None:
    """Returning acknowledges the message; whatever is raised delivers it again later."""
    order = message.json(Order)
    billed[order.id].set()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    consumer = PushConsumer("billing", {"orders": "placed"}, from_where="FIRST_OFFSET")
    async with Producer("shop") as producer, consumer:
        await consumer.start(each=bill)
        app.state.producer = producer
        yield


def producer_of(request: Request) -> Producer:
    producer: Producer = request.app.state.producer
    return producer


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place(
    order: Order, producer: Annotated[Producer, Depends(producer_of)]
) -> dict[str, str]:
    """Stored by the broker when this answers; billed soon after."""
    message = Message.json("orders", order, tags="placed", keys=order.id)
    try:
        result = await producer.send(message, key=order.id)
    except ClientError as error:
        raise HTTPException(503, "orders cannot be placed now, try again later") from error
    return {"message_id": result.msg_id}


@app.get("/bills/{order_id}")
async def bill_of(order_id: str, wait_s: float = 0) -> dict[str, str]:
    """Waits until the order is billed, so that a page need not ask again and again."""
    try:
        async with asyncio.timeout(wait_s):
            await billed[order_id].wait()
    except TimeoutError:
        raise HTTPException(404, f"order {order_id} is not billed yet") from None
    return {"order_id": order_id}
