"""A channel whose every call proves a token, as those of the project's own clients do."""

from collections import namedtuple

import grpc

from elastic_ps.control.channels import GREET
from elastic_ps.control.token import admitted, greeting
from protos import elastic_pb2 as pb

Details = namedtuple("Details", "method timeout metadata credentials wait_for_ready compression")


class _Showing(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def __init__(self, channel, token):
        self._channel, self._token = channel, token

    def _with(self, given):
        metadata = credentials(self._channel, self._token)
        return Details(given.method, given.timeout, metadata, None, given.wait_for_ready, None)

    def intercept_unary_unary(self, continuation, details, request):
        return continuation(self._with(details), request)

    intercept_unary_stream = intercept_unary_unary


def showing(channel, token):
    """`channel`, by which callers greet before each call and then prove `token`."""
    return grpc.intercept_channel(channel, _Showing(channel, token))


def credentials(channel, token):
    """The metadata of calls, after a greeting by `channel`."""
    nonce, metadata = greeting()
    greet = channel.unary_unary(GREET, pb.GreetRequest.SerializeToString, pb.GreetReply.FromString)
    return admitted(token, nonce, greet(pb.GreetRequest(), timeout=10, metadata=metadata))
