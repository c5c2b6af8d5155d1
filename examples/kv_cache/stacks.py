"""The two stacks that move pieces of memory, each as it is used by inference servers: NIXL and Mooncake.

Each has the memory of one host, describes it to the peer, and moves lists of pieces by number.
"""

import json
import time


class TransferError(Exception):
    """A transfer did not complete."""


class Nixl:
    """NIXL's Python package with its UCX backend."""

    def __init__(self, name, _address, memory, pieces, piece_bytes):
        try:
            from nixl._api import nixl_agent, nixl_agent_config
        except ImportError:
            from nixl_cu12._api import nixl_agent, nixl_agent_config
        # A progress thread would spin on a processor; whoever waits here makes progress.
        config = nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
        self.agent = nixl_agent(name, config)
        self.memory = memory
        self.addresses = [memory.ctypes.data + number * piece_bytes for number in range(pieces)]
        self.piece_bytes = piece_bytes
        self.region = self.agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")

    def _list(self, agent, addresses):
        pieces = [(address, self.piece_bytes, 0) for address in addresses]
        return self.agent.prep_xfer_dlist(agent, pieces, "DRAM")

    def describe(self):
        head = json.dumps({"address": self.addresses[0]}).encode()
        return len(head).to_bytes(4, "little") + head + self.agent.get_agent_metadata()

    def connect(self, description):
        end = 4 + int.from_bytes(description[:4], "little")
        first = json.loads(description[4:end])["address"]
        peer = self.agent.add_remote_agent(description[end:])
        self.peer = peer.decode() if isinstance(peer, bytes) else peer
        shift = first - self.addresses[0]
        self.local = self._list("NIXL_INIT_AGENT", self.addresses)
        self.remote = self._list(self.peer, [address + shift for address in self.addresses])

    def move(self, operation, local, remote):
        handle = self.agent.make_prepped_xfer(
            operation, self.local, local.tolist(), self.remote, remote.tolist(), b"moved"
        )
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        if state != "DONE":
            raise TransferError(f"NIXL reports {state}")
        self.agent.release_xfer_handle(handle)

    def serve(self):
        self.agent.get_new_notifs()

    def close(self):
        """Ends in this order: an agent that outlives its memory crashes."""
        self.agent.release_dlist_handle(self.local)
        self.agent.release_dlist_handle(self.remote)
        self.agent.remove_remote_agent(self.peer)
        self.agent.deregister_memory(self.region)
        del self.agent


class Mooncake:
    """Mooncake's transfer engine, without a metadata server. `protocol` is `rdma` or `tcp`."""

    protocol = "rdma"

    def __init__(self, _name, address, memory, pieces, piece_bytes):
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        if self.engine.initialize(address, "P2PHANDSHAKE", self.protocol, "") != 0:
            raise SystemExit(f"Mooncake does not start with {self.protocol} on {address}")
        self.session = f"{address}:{self.engine.get_rpc_port()}"
        self.first, self.piece_bytes = memory.ctypes.data, piece_bytes
        if self.engine.register_memory(self.first, memory.nbytes) != 0:
            raise SystemExit(f"Mooncake does not register {memory.nbytes} bytes")

    def describe(self):
        return json.dumps({"session": self.session, "address": self.first}).encode()

    def connect(self, description):
        peer = json.loads(description)
        self.peer, self.peer_first = peer["session"], peer["address"]

    def move(self, operation, local, remote):
        act = {
            "READ": self.engine.batch_transfer_sync_read,
            "WRITE": self.engine.batch_transfer_sync_write,
        }[operation]
        here = (self.first + local * self.piece_bytes).tolist()
        there = (self.peer_first + remote * self.piece_bytes).tolist()
        result = act(self.peer, here, there, [self.piece_bytes] * len(here))
        if result != 0:
            raise TransferError(f"Mooncake returns {result}")

    def serve(self):
        # Its threads do the work.
        time.sleep(0.001)

    def close(self):
        self.engine.unregister_memory(self.first)


class MooncakeTcp(Mooncake):
    """The same with Mooncake's own TCP."""

    protocol = "tcp"


STACKS = {"nixl": Nixl, "mooncake": Mooncake, "mooncake-tcp": MooncakeTcp}
