"""Sends the operations read from standard input by the datadog client, and prints
what was sent. Input and output are described in clients_test.go."""

import json
import sys

import datadog
from datadog.dogstatsd.base import DogStatsd
from datadog.util.format import normalize_tags


def client(network, address):
    # The client buffers, so that a burst fits the socket, and waits, so that nothing is lost before
    # it is sent.
    common = {"disable_buffering": False, "socket_timeout": 10, "origin_detection_enabled": False}
    if network == "udp":
        host, port = address.rsplit(":", 1)
        return DogStatsd(host=host, port=int(port), **common)
    scheme = {"unixgram": "unixgram://", "unix": "unixstream://"}[network]
    return DogStatsd(socket_path=scheme + address, **common)


def send(statsd, op):
    tags, rate = op["tags"], op["rate"]
    if op["method"] == "event":
        statsd.event(
            op["title"], op["text"], alert_type=op["alert"], aggregation_key=op["key"],
            source_type_name=op["source"], priority=op["priority"], hostname=op["host"], tags=tags,
        )
        return
    if op["method"] == "check":
        statsd.service_check(op["name"], op["status"], tags=tags, message=op["message"])
        return
    method = {"count": "increment", "updown": "increment"}.get(op["method"], op["method"])
    for value in op["members"] if op["method"] == "set" else op["values"]:
        if op["method"] == "updown" and value < 0:
            statsd.decrement(op["name"], -value, tags=tags, sample_rate=rate)
            continue
        getattr(statsd, method)(op["name"], value, tags=tags, sample_rate=rate)


def main():
    order = json.load(sys.stdin)
    direct = client(order["network"], order["address"])
    tapped = client(order["network"], order["tap"])
    for op in order["operations"]:
        send(direct if op["rate"] == 1 else tapped, op)
        op["tags"] = normalize_tags(op["tags"] or [])  # as the client does, before it sends
    for c in (direct, tapped):
        c.flush()
        c.close_socket()
        if c.packets_dropped:
            sys.exit("the client dropped %d packets" % c.packets_dropped)
    json.dump({"client": "datadog " + datadog.version.__version__, "sent": order["operations"]}, sys.stdout)


main()
