"""Ask a running `specdec serve` over gRPC: python examples/grpc_client.py [address]."""

from __future__ import annotations

import sys

import grpc

from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9000"
question = pb.ChatMessage(role="user", content="What is the capital of France?")
request = pb.GenerateRequest(
    chat=pb.ChatMessages(messages=[question]),
    sampling=pb.SamplingParams(temperature=0, max_tokens=32),
)
with grpc.insecure_channel(address) as channel:
    service = pb_grpc.GenerationServiceStub(channel)
    for response in service.Generate(request):
        print(response.text, end="", flush=True)
    print()
    stats = response.speculation
    print(f"{stats.num_accepted_draft_tokens} of {stats.num_draft_tokens} drafted tokens accepted")
