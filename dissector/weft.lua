-- Weft's transport in Wireshark and tshark: data, ACK and set-up packets of BIFROST (appendix C), with Weft's message
-- and RDMA extensions, encrypted or not, and the overlay's VXLAN around them. Generated from weft-wire by `cargo xtask
-- docs`; edit the tables in crates/weft-wire/src or the program in crates/xtask/src/docs/dissector/.
--
--   tshark -X lua_script:dissector/weft.lua -r capture.pcapng -V
--   tshark -X lua_script:dissector/weft.lua -o weft.keys:FILE -r capture.pcapng     (keys: WEFT_KEY_LOG)
--   cp dissector/weft.lua ~/.local/lib/wireshark/plugins/      (Wireshark: Help, About, Folders)
--
-- The plug-in recognises packets by their content, on any UDP port. Filters are `weft.ack`, `weft.ack.num_ece` and so
-- on; `weft.psn` and `weft.cid` match the field in any header.

local weft = Proto("weft", "Weft transport")
local names, headers, fields = {}, {}, {}

local types = { [1] = ProtoField.uint8, [2] = ProtoField.uint16, [3] = ProtoField.uint24,
                [4] = ProtoField.uint32, [8] = ProtoField.uint64 }
-- Identifiers, keys and addresses are shown in hexadecimal.
local hex = { destination_cid = true, local_cid = true, virtual_address = true, r_key = true,
              token = true, capabilities = true, spi = true }

local function header(key, name, length, rows)
  local made = { length = length, fields = {}, whole = ProtoField.none("weft." .. key, name) }
  fields[#fields + 1] = made.whole
  for _, row in ipairs(rows) do
    local slug, label, at, bytes, width, mask, list, meaning = table.unpack(row, 1, 8)
    local abbreviation = "weft." .. key .. "." .. slug
    local field
    if width == 1 then
      field = ProtoField.bool(abbreviation, label, 8, nil, mask, meaning)
    elseif mask ~= 0 then
      field = types[bytes](abbreviation, label, base.DEC, list, mask, meaning)
    else
      field = types[bytes](abbreviation, label, hex[slug] and base.HEX or base.DEC, list, nil, meaning)
    end
    made.fields[#made.fields + 1] = { field = field, at = at, bytes = bytes }
    fields[#fields + 1] = field
  end
  headers[key] = made
end

names["Packet types"] = {
  [1] = "data",
  [2] = "ack",
  [3] = "request",
  [4] = "challenge",
  [5] = "accept",
  [6] = "reject",
  [7] = "close",
  [8] = "reset",
  [9] = "sealed",
}
names["Sealed contents"] = {
  [0] = "packet",
  [1] = "frame",
}
names["ACK types"] = {
  [0] = "plain",
  [1] = "duplicate",
  [2] = "nack",
  [3] = "trimmed",
  [4] = "trimmed-last-hop",
  [5] = "credit",
  [6] = "credit-request",
}
names["RDMA operations"] = {
  [4] = "RC SEND",
  [5] = "RC SEND with immediate",
  [10] = "RC RDMA WRITE",
  [11] = "RC RDMA WRITE with immediate",
  [12] = "RC RDMA READ request",
  [16] = "RC RDMA READ response",
  [17] = "RC acknowledge",
  [18] = "RC atomic acknowledge",
  [19] = "RC CmpSwap",
  [20] = "RC FetchAdd",
  [23] = "RC SEND with invalidate",
  [36] = "UC SEND",
  [37] = "UC SEND with immediate",
  [42] = "UC RDMA WRITE",
  [43] = "UC RDMA WRITE with immediate",
  [100] = "UD SEND",
  [101] = "UD SEND with immediate",
}
names["Frame kinds"] = {
  [1] = "small",
  [2] = "large",
  [3] = "ACK",
  [4] = "NOP",
  [5] = "switch",
  [6] = "close",
  [7] = "offer",
}
names["VXLAN next protocols"] = {
  [3] = "frame",
  [126] = "weft",
}
header("data", "Data packet", 16, {
  { "pkt_type", "Pkt Type", 0, 1, 8, 0x0, names["Packet types"], "1" },
  { "version", "Version", 1, 1, 4, 0xf0, nil, "protocol version" },
  { "cc_type", "CC Type", 1, 1, 4, 0xf, nil, "congestion control in use, by its number in the registry" },
  { "se", "se", 2, 1, 1, 0x80, nil, "special packet (keepalive, path probe): uses no sequence number" },
  { "ack", "ack", 2, 1, 1, 0x40, nil, "requests an immediate ACK" },
  { "dir", "dir", 2, 1, 1, 0x20, nil, "set on packets from the side that accepted the connection" },
  { "ece", "ece", 2, 1, 1, 0x10, nil, "congestion notification is on: ACKs count the marks on such packets" },
  { "ret", "ret", 2, 1, 1, 0x8, nil, "retransmission" },
  { "path_id", "Path ID", 2, 1, 3, 0x7, nil, "low three bits of the path's index" },
  { "reserved", "Reserved", 3, 1, 8, 0x0, nil, "next header: 0 a tenant's frame, 1 a message header, 2 a message header and an RDMA header" },
  { "packet_sequence_number", "Packet Sequence Number", 4, 4, 32, 0x0, nil, "sequence number, modulo 2^32" },
  { "destination_cid", "Destination CID", 8, 4, 32, 0x0, nil, "the receiver's connection id" },
  { "timestamp_value", "Timestamp Value", 12, 4, 32, 0x0, nil, "time at which the packet left its engine (t1), ns mod 2^32" },
})
header("message", "Message extension", 16, {
  { "opcode", "Opcode", 0, 1, 8, 0x0, nil, "operation of the application; the transport only carries it" },
  { "reserved", "Reserved", 1, 1, 8, 0x0, nil, "sent as zero, not read" },
  { "tag", "Tag", 2, 2, 16, 0x0, nil, "further data of the application; the transport only carries it" },
  { "message_id", "Message ID", 4, 4, 32, 0x0, nil, "number of the message in its connection, modulo 2^32" },
  { "offset", "Offset", 8, 4, 32, 0x0, nil, "offset of this packet's payload in the message, bytes" },
  { "length", "Length", 12, 4, 32, 0x0, nil, "length of the whole message, bytes" },
})
header("rdma", "RDMA extension", 24, {
  { "se", "SE", 0, 1, 1, 0x80, nil, "solicited event: the completion notifies the receiver" },
  { "a", "A", 0, 1, 1, 0x40, nil, "the operands of an atomic follow" },
  { "reserved", "Reserved", 0, 1, 6, 0x3f, nil, "sent as zero, not read" },
  { "destqp", "DestQP", 1, 3, 24, 0x0, nil, "destination queue pair" },
  { "reserved_2", "Reserved", 4, 1, 8, 0x0, nil, "sent as zero, not read" },
  { "psn", "PSN", 5, 3, 24, 0x0, nil, "sequence number of the request in its queue pair; a response has its request's number" },
  { "virtual_address", "Virtual Address", 8, 8, 64, 0x0, nil, "address of the message's first byte; number of the receive request that a SEND consumes; result of an atomic; source of a datagram" },
  { "r_key", "R_Key", 16, 4, 32, 0x0, nil, "key of the remote memory; Q_Key of a datagram" },
  { "immediate", "Immediate", 20, 4, 32, 0x0, nil, "immediate data; R_Key to invalidate; length of a READ, bytes; syndrome of an acknowledgement" },
})
header("operands", "RDMA atomic operands", 16, {
  { "swap_or_add_data", "Swap (or Add) Data", 0, 8, 64, 0x0, nil, "value to store or to add" },
  { "compare_data", "Compare Data", 8, 8, 64, 0x0, nil, "value that the memory must have for the swap to happen" },
})
header("setup", "Connection set-up packet", 12, {
  { "pkt_type", "Pkt Type", 0, 1, 8, 0x0, names["Packet types"], "3 to 8" },
  { "version", "Version", 1, 1, 4, 0xf0, nil, "highest version that the sender supports; in an accept, the chosen version" },
  { "cc_type", "CC Type", 1, 1, 4, 0xf, nil, "congestion control of the sender, by its number in the registry" },
  { "thread_id", "Thread ID", 2, 1, 8, 0x0, nil, "the sender's thread, which should receive the peer's packets" },
  { "reserved", "Reserved", 3, 1, 8, 0x0, nil, "the reason of a reject or a close; in a request and an accept, log2 of the number of connections that are about to send to the sender; in a reset, the field that Destination CID echoes: 1 a data packet's PSN, 2 an ACK's PSN_base, 3 a probe's timestamp, 4 an accept's First PSN, 5 a sealed packet's IV; zero otherwise" },
  { "local_cid", "Local CID", 4, 4, 32, 0x0, nil, "the sender's connection id" },
  { "destination_cid", "Destination CID", 8, 4, 32, 0x0, nil, "the receiver's connection id; zero while unknown; in a reset, the echoed field of the packet that it answers" },
})
header("terms", "Terms", 32, {
  { "capabilities", "Capabilities", 0, 4, 32, 0x0, nil, "the sender's capabilities, one bit for each; both ends use the intersection" },
  { "first_psn", "First PSN", 4, 4, 32, 0x0, nil, "sequence number of the sender's first packet" },
  { "mtu", "MTU", 8, 2, 16, 0x0, nil, "largest payload that the sender accepts in one packet, bytes" },
  { "window", "Window", 10, 2, 16, 0x0, nil, "number of packets that the sender accepts out of order, from the first missing one" },
  { "paths", "Paths", 12, 2, 16, 0x0, nil, "number of paths over which the sender sprays" },
  { "receive_port", "Receive Port", 14, 2, 16, 0x0, nil, "UDP port on which the sender receives" },
  { "service", "Service", 16, 4, 32, 0x0, nil, "purpose of the connection, as a number of the application; for connected queue pairs the responder, for datagrams 2^31" },
  { "service_high_part", "Service, high part", 20, 3, 24, 0x0, nil, "the high 24 bits of that number; for connected queue pairs the requester" },
  { "min_version", "Min Version", 23, 1, 8, 0x0, nil, "lowest version that the sender supports" },
  { "token", "Token", 24, 8, 64, 0x0, nil, "proof of address: zero at first, then the challenge's token" },
})
header("exchange", "Key exchange", 4, {
  { "protocol", "Protocol", 0, 1, 8, 0x0, nil, "1 Noise_IXpsk0_25519_ChaChaPoly_SHA256; a peer that does not know the number answers as if there were no exchange" },
  { "reserved", "Reserved", 1, 1, 8, 0x0, nil, "sent as zero, not read" },
  { "length", "Length", 2, 2, 16, 0x0, nil, "length of the Noise message that follows, bytes" },
})
header("sealed", "Sealed packet", 12, {
  { "pkt_type", "Pkt Type", 0, 1, 8, 0x0, names["Packet types"], "9" },
  { "version", "Version", 1, 1, 4, 0xf0, nil, "protocol version" },
  { "cipher", "Cipher", 1, 1, 4, 0xf, nil, "0 AES-GCM-128, 1 AES-GCM-256 (PSP's versions)" },
  { "key", "Key", 2, 1, 8, 0x0, nil, "number of the sender's key, modulo 2^8; the first is 0" },
  { "content", "Content", 3, 1, 8, 0x0, names["Sealed contents"], "type of the encrypted content; see Sealed contents" },
  { "iv", "IV", 4, 4, 32, 0x0, nil, "low half of the packet's number, which is unique among the sender's packets on this connection" },
  { "spi", "SPI", 8, 4, 32, 0x0, nil, "the receiver's connection id, as Destination CID elsewhere" },
})
header("ack", "ACK packet", 32, {
  { "pkt_type", "Pkt Type", 0, 1, 8, 0x0, names["Packet types"], "2" },
  { "version", "Version", 1, 1, 4, 0xf0, nil, "protocol version" },
  { "cc_type", "CC Type", 1, 1, 4, 0xf, nil, "congestion control in use, by its number in the registry" },
  { "se", "se", 2, 1, 1, 0x80, nil, "answers a special packet (keepalive, path probe) or a trimmed one, or is about credit" },
  { "path_id", "Path ID", 2, 1, 3, 0x70, nil, "low three bits of the index of the echoed packet's path" },
  { "hop_count", "Hop Count", 2, 1, 4, 0xf, nil, "number of hops of the echoed packet, from its TTL" },
  { "ack_value", "ACK Value", 3, 1, 5, 0xf8, nil, "index of the block of 256 packets from PSN_base on that the bitmap describes" },
  { "ack_type", "ACK Type", 3, 1, 3, 0x7, names["ACK types"], "additional information; see ACK types" },
  { "packet_sequence_number", "Packet Sequence Number", 4, 4, 32, 0x0, nil, "sequence number of the packet that this ACK echoes" },
  { "destination_cid", "Destination CID", 8, 4, 32, 0x0, nil, "the data sender's connection id" },
  { "timestamp_value", "Timestamp Value", 12, 4, 32, 0x0, nil, "time at which the ACK left its engine (t3), ns of the receiver's clock mod 2^32" },
  { "timestamp_echo", "Timestamp Echo", 16, 4, 32, 0x0, nil, "the echoed packet's timestamp (t1), unchanged" },
  { "timestamp_nic_rx", "Timestamp NIC RX", 20, 4, 32, 0x0, nil, "time at which the echoed packet reached the receiver (t2), ns of its clock mod 2^32" },
  { "num_ack", "Num_ACK", 24, 2, 11, 0xffe0, nil, "packets accepted since the connection began, modulo 2^11" },
  { "num_ece", "Num_ece", 25, 2, 11, 0x1ffc, nil, "of those, packets with a congestion mark, modulo 2^11" },
  { "psn_bitmap_len", "PSN_bitmap_len", 26, 2, 4, 0x3c0, nil, "number of bitmap words that follow, 0 to 8" },
  { "reserved", "Reserved", 27, 1, 6, 0x3f, nil, "sent as zero" },
  { "psn_base", "PSN_base", 28, 4, 32, 0x0, nil, "every packet before this one has been placed" },
})
header("vxlan", "VXLAN", 8, {
  { "r", "R", 0, 1, 4, 0xf0, nil, "sent as zero, not read" },
  { "i", "I", 0, 1, 1, 0x8, nil, "set: the VNI is valid" },
  { "p", "P", 0, 1, 1, 0x4, nil, "set: Next Protocol is valid (VXLAN-GPE)" },
  { "r_2", "R", 0, 1, 2, 0x3, nil, "sent as zero, not read" },
  { "reserved", "Reserved", 1, 2, 16, 0x0, nil, "sent as zero, not read" },
  { "next_protocol", "Next Protocol", 3, 1, 8, 0x0, nil, "type of the payload; zero and not read without P" },
  { "vni", "VNI", 4, 3, 24, 0x0, nil, "the tenant's network" },
  { "reserved_2", "Reserved", 7, 1, 8, 0x0, nil, "sent as zero, not read" },
})

local kind = {}
for number, name in pairs(names["Packet types"]) do kind[name] = number end

local any_psn = ProtoField.uint32("weft.psn", "Packet Sequence Number, of any header", base.DEC)
local any_cid = ProtoField.uint32("weft.cid", "Connection ID, of any header", base.HEX)
local operation = ProtoField.uint8("weft.rdma.operation", "Operation", base.DEC, names["RDMA operations"])
local bitmap = ProtoField.bytes("weft.ack.bitmap", "Bitmap")
local placed = ProtoField.uint32("weft.ack.placed", "Packets placed beyond PSN_base in this block", base.DEC)
local payload = ProtoField.bytes("weft.payload", "Payload")
local exchange = ProtoField.bytes("weft.exchange.message", "Noise message")
local encrypted = ProtoField.bytes("weft.encrypted", "Encrypted")
local tag = ProtoField.bytes("weft.sealed.tag", "Tag")
local whole_iv = ProtoField.uint64("weft.sealed.number", "Packet number: all 64 bits of the IV", base.DEC)
local authentic = ProtoField.bool("weft.sealed.authentic", "Authentic")
for _, field in ipairs({ any_psn, any_cid, operation, bitmap, placed, payload, exchange, encrypted, tag, whole_iv, authentic }) do
  fields[#fields + 1] = field
end
weft.fields = fields

local repeated = ProtoExpert.new("weft.repeated", "Retransmitted packet", expert.group.SEQUENCE, expert.severity.NOTE)
local needless = ProtoExpert.new("weft.needless", "Spurious retransmission: the echoed packet was already placed", expert.group.SEQUENCE, expert.severity.NOTE)
local refused = ProtoExpert.new("weft.refused", "NACK: the peer requests missing packets", expert.group.SEQUENCE, expert.severity.WARN)
local ended = ProtoExpert.new("weft.ended", "The connection ends or is refused", expert.group.SEQUENCE, expert.severity.CHAT)
local cut = ProtoExpert.new("weft.cut", "Headers are truncated", expert.group.MALFORMED, expert.severity.ERROR)
local forged = ProtoExpert.new("weft.sealed.forged", "Not authentic: modified, forged, or encrypted with another key", expert.group.SECURITY, expert.severity.ERROR)
local unchecked = ProtoExpert.new("weft.sealed.unchecked", "Decrypted, but not authenticated: the tag was not captured", expert.group.SECURITY, expert.severity.NOTE)
weft.experts = { repeated, needless, refused, ended, cut, forged, unchecked }

-- Adds a header's fields and returns their subtree; returns false if the buffer is too short.
local function add(tree, buffer, at, key)
  local header = headers[key]
  if buffer:len() < at + header.length then
    tree:add_proto_expert_info(cut)
    return false
  end
  local subtree = tree:add(header.whole, buffer(at, header.length))
  for _, field in ipairs(header.fields) do
    subtree:add(field.field, buffer(at + field.at, field.bytes))
  end
  return subtree
end

local function identify(tree, buffer, psn_at, cid_at)
  if psn_at then tree:add(any_psn, buffer(psn_at, 4)):set_hidden() end
  tree:add(any_cid, buffer(cid_at, 4)):set_hidden()
end

local function dissect_rdma(tree, buffer, opcode)
  local subtree = add(tree, buffer, 32, "rdma")
  if not subtree then return nil, buffer:len() end
  subtree:add(operation, buffer(16, 1))
  local at = 32 + headers.rdma.length
  if buffer(32, 1):bitfield(1, 1) == 1 then
    if not add(tree, buffer, at, "operands") then return nil, buffer:len() end
    at = at + headers.operands.length
  end
  local name = names["RDMA operations"][opcode] or string.format("operation %d", opcode)
  return string.format("%s QP 0x%06x, request %d", name, buffer(33, 3):uint(), buffer(37, 3):uint()), at
end

local function dissect_data(tree, buffer)
  local subtree = add(tree, buffer, 0, "data")
  if not subtree then return "data" end
  identify(tree, buffer, 4, 8)
  local follows, at, what = buffer(3, 1):uint(), headers.data.length, nil
  local special = buffer(2, 1):bitfield(0, 1) == 1
  if buffer(2, 1):bitfield(4, 1) == 1 then subtree:add_proto_expert_info(repeated) end
  if follows > 0 then
    if not add(tree, buffer, at, "message") then return "data" end
    local opcode = buffer(16, 1):uint()
    what = string.format("message %d, %d of %d", buffer(20, 4):uint(), buffer(24, 4):uint(), buffer(28, 4):uint())
    at = at + headers.message.length
    if follows == 2 then
      local request
      request, at = dissect_rdma(tree, buffer, opcode)
      if request then what = request .. ", " .. what end
    end
  end
  if buffer:len() > at then tree:add(payload, buffer(at)) end
  local path = buffer(2, 1):bitfield(5, 3)
  local head = special and "probe" or string.format("data psn %d", buffer(4, 4):uint())
  return string.format("%s path %d%s", head, path, what and ", " .. what or "")
end

local function dissect_ack(tree, buffer)
  local subtree = add(tree, buffer, 0, "ack")
  if not subtree then return "ack" end
  identify(tree, buffer, 4, 8)
  local words, at = buffer(26, 2):bitfield(6, 4), headers.ack.length
  local count = 0
  if words > 0 and buffer:len() >= at + 4 * words then
    tree:add(bitmap, buffer(at, 4 * words))
    for word = 0, words - 1 do
      local bits = buffer(at + 4 * word, 4):uint()
      while bits > 0 do
        count = count + bits % 2
        bits = math.floor(bits / 2)
      end
    end
    tree:add(placed, count):set_generated()
  elseif words > 0 then
    tree:add_proto_expert_info(cut)
  end
  local type = buffer(3, 1):bitfield(5, 3)
  if type == 1 then subtree:add_proto_expert_info(needless) end
  if type == 2 then subtree:add_proto_expert_info(refused) end
  local echo = buffer(2, 1):bitfield(0, 1) == 1 and "answers probe" or "echo"
  local beyond = count > 0 and string.format(", %d beyond", count) or ""
  return string.format("%s base %d, %s %d path %d%s", names["ACK types"][type] == "plain" and "ack"
    or "ack (" .. (names["ACK types"][type] or "?") .. ")", buffer(28, 4):uint(), echo,
    buffer(4, 4):uint(), buffer(2, 1):bitfield(1, 3), beyond)
end

-- Adds the key exchange and returns true; returns false if there is none.
local function dissect_exchange(tree, buffer, at)
  if buffer:len() <= at or not add(tree, buffer, at, "exchange") then return false end
  local length, from = buffer(at + 2, 2):uint(), at + headers.exchange.length
  if buffer:len() < from + length then
    tree:add_proto_expert_info(cut)
  elseif length > 0 then
    tree:add(exchange, buffer(from, length))
  end
  return true
end

local function dissect_setup(tree, buffer, type)
  local subtree = add(tree, buffer, 0, "setup")
  if not subtree then return names["Packet types"][type] end
  identify(tree, buffer, nil, 4)
  identify(tree, buffer, nil, 8)
  if type == kind.reject or type == kind.close or type == kind.reset then
    subtree:add_proto_expert_info(ended)
  elseif add(tree, buffer, headers.setup.length, "terms") then
    local exchanged = type ~= kind.challenge and dissect_exchange(tree, buffer, headers.setup.length + headers.terms.length)
    local from = buffer(32, 3):uint()
    return string.format("%s service %d%s, %d paths, mtu %d%s", names["Packet types"][type],
      buffer(28, 4):uint(), from > 0 and " from " .. from or "", buffer(24, 2):uint(), buffer(20, 2):uint(), exchanged and ", key exchange" or "")
  end
  return names["Packet types"][type]
end

-- Dissects an unencrypted packet.
local function dissect_clear(buffer, _, tree)
  local type = buffer:len() > 0 and buffer(0, 1):uint() or 0
  if type == kind.data then return dissect_data(tree, buffer) end
  if type == kind.ack then return dissect_ack(tree, buffer) end
  if type == kind.sealed or not names["Packet types"][type] then return "unknown packet" end
  return dissect_setup(tree, buffer, type)
end

-- AES-GCM (FIPS 197; NIST SP 800-38D) for decryption only: a key of 16 or 32 bytes and a nonce of 12. Bytes are
-- strings, blocks are four words of 32 bits. Lua before 5.3 has bit32, later versions have operators.
local bits = bit32 or load([[return {
  band = function(a, b) return a & b end,
  bxor = function(a, ...)
    for _, b in ipairs({ ... }) do a = a ~ b end
    return a
  end,
  lshift = function(a, n) return (a << n) & 0xffffffff end,
  rshift = function(a, n) return a >> n end,
  rrotate = function(a, n) return (a >> n | a << (32 - n)) & 0xffffffff end,
}]])()
local band, bxor, lshift, rshift, rrotate = bits.band, bits.bxor, bits.lshift, bits.rshift, bits.rrotate

local gcm = {}

local function word(bytes, at)
  local a, b, c, d = bytes:byte(at, at + 3)
  return a * 0x1000000 + b * 0x10000 + c * 0x100 + d
end

local function block(bytes, at)
  return word(bytes, at), word(bytes, at + 4), word(bytes, at + 8), word(bytes, at + 12)
end

local function as_bytes(a)
  return string.char(rshift(a, 24), band(rshift(a, 16), 255), band(rshift(a, 8), 255), band(a, 255))
end

-- Doubles a number of the field GF(2^8).
local function double(x)
  x = lshift(x, 1)
  return x > 255 and bxor(x, 0x11b) or x
end

-- The S-box, and for each byte of a column the result of a round's SubBytes and MixColumns.
local sbox, mix = {}, { {}, {}, {}, {} }
do
  local log, power, x = {}, {}, 1
  for exponent = 0, 254 do
    power[exponent], log[x] = x, exponent
    x = bxor(x, double(x))
  end
  for byte = 0, 255 do
    local inverse = byte == 0 and 0 or power[(255 - log[byte]) % 255]
    local s = inverse
    for shift = 1, 4 do
      s = bxor(s, band(bxor(lshift(inverse, shift), rshift(inverse, 8 - shift)), 255))
    end
    s = bxor(s, 0x63)
    sbox[byte] = s
    local column = double(s) * 0x1000000 + s * 0x10000 + s * 0x100 + bxor(s, double(s))
    for row = 1, 4 do mix[row][byte] = rrotate(column, 8 * (row - 1)) end
  end
end
local mix1, mix2, mix3, mix4 = mix[1], mix[2], mix[3], mix[4]

local function substitute(a, b, c, d)
  return sbox[rshift(a, 24)] * 0x1000000 + sbox[band(rshift(b, 16), 255)] * 0x10000
    + sbox[band(rshift(c, 8), 255)] * 0x100 + sbox[band(d, 255)]
end

local function encrypt(key, a, b, c, d)
  local words, last = key.words, 4 * key.rounds
  a, b, c, d = bxor(a, words[0]), bxor(b, words[1]), bxor(c, words[2]), bxor(d, words[3])
  for at = 4, last - 4, 4 do
    a, b, c, d =
      bxor(mix1[rshift(a, 24)], mix2[band(rshift(b, 16), 255)], mix3[band(rshift(c, 8), 255)], mix4[band(d, 255)], words[at]),
      bxor(mix1[rshift(b, 24)], mix2[band(rshift(c, 16), 255)], mix3[band(rshift(d, 8), 255)], mix4[band(a, 255)], words[at + 1]),
      bxor(mix1[rshift(c, 24)], mix2[band(rshift(d, 16), 255)], mix3[band(rshift(a, 8), 255)], mix4[band(b, 255)], words[at + 2]),
      bxor(mix1[rshift(d, 24)], mix2[band(rshift(a, 16), 255)], mix3[band(rshift(b, 8), 255)], mix4[band(c, 255)], words[at + 3])
  end
  return bxor(substitute(a, b, c, d), words[last]), bxor(substitute(b, c, d, a), words[last + 1]),
    bxor(substitute(c, d, a, b), words[last + 2]), bxor(substitute(d, a, b, c), words[last + 3])
end

-- Multiplies by x in the field GF(2^128), whose first bit is the constant term.
local function shift(a, b, c, d)
  local carry = band(d, 1) * 0xe1000000
  return bxor(rshift(a, 1), carry), bxor(rshift(b, 1), lshift(a, 31)), bxor(rshift(c, 1), lshift(b, 31)),
    bxor(rshift(d, 1), lshift(c, 31))
end

-- The reduction of the four bits that a right shift by four moves out.
local carries = {}
for nibble = 0, 15 do
  local a, b, c, d = 0, 0, 0, nibble
  for _ = 1, 4 do a, b, c, d = shift(a, b, c, d) end
  carries[nibble] = a
end

-- Expands a key: the round keys, and the products of the hash key with each four-bit number.
function gcm.key(bytes)
  local words, count, constant = {}, rshift(#bytes, 2), 1
  local key = { words = words, rounds = count + 6, times = {} }
  for at = 0, count - 1 do words[at] = word(bytes, 4 * at + 1) end
  for at = count, 4 * key.rounds + 3 do
    local a = words[at - 1]
    if at % count == 0 then
      a = rrotate(a, 24)
      a = bxor(substitute(a, a, a, a), lshift(constant, 24))
      constant = double(constant)
    elseif count == 8 and at % count == 4 then
      a = substitute(a, a, a, a)
    end
    words[at] = bxor(words[at - count], a)
  end
  local times = key.times
  times[0], times[8] = { 0, 0, 0, 0 }, { encrypt(key, 0, 0, 0, 0) }
  for _, nibble in ipairs({ 4, 2, 1 }) do times[nibble] = { shift(table.unpack(times[2 * nibble])) } end
  for _, high in ipairs({ 2, 4, 8 }) do
    for low = 1, high - 1 do
      local sum = {}
      for at = 1, 4 do sum[at] = bxor(times[high][at], times[low][at]) end
      times[high + low] = sum
    end
  end
  return key
end

-- Multiplies a block by the hash key (Shoup's tables of four bits).
local function times_hash_key(times, a, b, c, d)
  local w, x, y, z = 0, 0, 0, 0
  for _, part in ipairs({ d, c, b, a }) do
    for at = 0, 28, 4 do
      local carry, by = carries[band(z, 15)], times[band(rshift(part, at), 15)]
      z = bxor(rshift(z, 4), lshift(y, 28), by[4])
      y = bxor(rshift(y, 4), lshift(x, 28), by[3])
      x = bxor(rshift(x, 4), lshift(w, 28), by[2])
      w = bxor(rshift(w, 4), carry, by[1])
    end
  end
  return w, x, y, z
end

-- Returns the GHASH of the authenticated data: the clear part and the encrypted part.
function gcm.hash(key, clear, text)
  local times, w, x, y, z = key.times, 0, 0, 0, 0
  for _, part in ipairs({ clear, text }) do
    local padded = part .. string.rep("\0", -#part % 16)
    for at = 1, #padded, 16 do
      local a, b, c, d = block(padded, at)
      w, x, y, z = times_hash_key(times, bxor(w, a), bxor(x, b), bxor(y, c), bxor(z, d))
    end
  end
  return { times_hash_key(times, w, bxor(x, 8 * #clear), y, bxor(z, 8 * #text)) }
end

-- Returns the tag for a hash and a nonce.
function gcm.tag(key, nonce, hash)
  local a, b, c, d = encrypt(key, word(nonce, 1), word(nonce, 5), word(nonce, 9), 1)
  return as_bytes(bxor(a, hash[1])) .. as_bytes(bxor(b, hash[2])) .. as_bytes(bxor(c, hash[3])) .. as_bytes(bxor(d, hash[4]))
end

-- Decrypts in counter mode, which is the same operation as encryption.
function gcm.decrypt(key, nonce, text)
  local padded, out = text .. string.rep("\0", -#text % 16), {}
  local first, second, third = word(nonce, 1), word(nonce, 5), word(nonce, 9)
  for at = 1, #padded, 16 do
    local a, b, c, d = encrypt(key, first, second, third, (at - 1) / 16 + 2)
    local e, f, g, h = block(padded, at)
    out[#out + 1] = as_bytes(bxor(a, e)) .. as_bytes(bxor(b, f)) .. as_bytes(bxor(c, g)) .. as_bytes(bxor(d, h))
  end
  return table.concat(out):sub(1, #text)
end

-- Encrypted packets. The preference "weft.keys" names a file of keys as `WEFT_KEY_LOG` writes it: one line per key with
-- SPI, cipher, key number and key bytes. New lines are read as the file grows.
weft.prefs.keys = Pref.string("Key log", "", "A file of keys (WEFT_KEY_LOG) with which sealed packets are decrypted")

local TAG, TWO_32 = 16, 4294967296
-- Maximum number of wraps of the low 32 bits that may precede a capture.
local MAX_WRAPS = 64
local ciphers = { [0] = "AES-GCM-128", [1] = "AES-GCM-256" }

-- Lists of keys by SPI, cipher and key number. The two ends choose SPIs independently and key numbers repeat, so an
-- index may have several keys.
local keys, key_file, read_up_to
-- The next expected packet number of each direction, and the result of each frame.
local next_number, opened

local function forget()
  keys, key_file, read_up_to, next_number, opened = {}, nil, 0, {}, {}
end
weft.init = forget
forget()

local function read_keys()
  local name = weft.prefs.keys
  if name ~= key_file then keys, key_file, read_up_to = {}, name, 0 end
  local file = name ~= "" and io.open(name, "rb")
  if not file then return end
  file:seek("set", read_up_to)
  local text = file:read("*a") or ""
  file:close()
  for line in text:gmatch("[^\n]*\n") do
    read_up_to = read_up_to + #line
    local spi, cipher, number, digits = line:match("^(%x+) (%d+) (%d+) (%x+)%s*$")
    if digits and (#digits == 32 or #digits == 64) then
      local index = string.format("%d/%s/%s", tonumber(spi, 16), cipher, number)
      local bytes = digits:gsub("%x%x", function(byte) return string.char(tonumber(byte, 16)) end)
      keys[index] = keys[index] or {}
      local list, known = keys[index], false
      for _, key in ipairs(list) do known = known or key.bytes == bytes end
      if not known then list[#list + 1] = { bytes = bytes } end
    end
  end
end

local function keys_of(index)
  if not keys[index] then read_keys() end
  return keys[index]
end

-- Returns the nonce: the SPI followed by the packet's number.
local function nonce_of(spi, number)
  local bytes = ""
  for _, half in ipairs({ math.floor(number / TWO_32), number % TWO_32 }) do
    for _, unit in ipairs({ 0x1000000, 0x10000, 0x100, 1 }) do
      bytes = bytes .. string.char(math.floor(half / unit) % 256)
    end
  end
  return spi .. bytes
end

-- Returns the number with this low half that is nearest to the expected one (RFC 4304, appendix A2).
local function complete(next, low)
  local ahead = (low - next) % TWO_32
  if ahead < TWO_32 / 2 or next + ahead < TWO_32 then return next + ahead end
  return next + ahead - TWO_32
end

local function numbers_of(next, low)
  if next then return { complete(next, low) } end
  local numbers = {}
  for wraps = 0, MAX_WRAPS - 1 do numbers[#numbers + 1] = wraps * TWO_32 + low end
  return numbers
end

-- Tries every key on a packet. Without a tag, the decrypted content must at least name the connection.
local function open(packet, list, next)
  for _, key in ipairs(list) do
    key.aes = key.aes or gcm.key(key.bytes)
    local hash = packet.tag and gcm.hash(key.aes, packet.clear, packet.text)
    for _, number in ipairs(numbers_of(next, packet.low)) do
      local nonce = nonce_of(packet.spi, number)
      if hash then
        if gcm.tag(key.aes, nonce, hash) == packet.tag then return { key = key, number = number, authentic = true } end
      elseif packet.names_itself and gcm.decrypt(key.aes, nonce, packet.text:sub(1, 16)):sub(9, 12) == packet.spi then
        return { key = key, number = number }
      end
    end
  end
  return {}
end

-- Does the same once per frame. Only authentic packets advance the expected number of the direction.
local function open_once(packet, index, pinfo)
  local list = keys_of(index)
  if not list then return nil end
  local known = opened[pinfo.number]
  if known then return known end
  local direction = tostring(pinfo.dst) .. packet.spi
  local found = open(packet, list, next_number[direction])
  if found.authentic then
    next_number[direction] = math.max(next_number[direction] or 0, found.number + 1)
  end
  opened[pinfo.number] = found
  return found
end

local frame_inside = Dissector.get("eth_withoutfcs")

-- The argument `before` is the authenticated data that precedes the packet in the UDP payload.
local function dissect_sealed(subtree, buffer, pinfo, tree, before, dissect_inside)
  local header = add(subtree, buffer, 0, "sealed")
  if not header then return "sealed" end
  local at, length = headers.sealed.length, buffer:len()
  local whole = length == buffer:reported_len() and length >= at + TAG
  local cipher, number = buffer(1, 1):bitfield(4, 4), buffer(2, 1):uint()
  local content, low, spi = buffer(3, 1):uint(), buffer(4, 4):uint(), buffer(8, 4):uint()
  identify(subtree, buffer, nil, 8)
  local text_end = whole and length - TAG or length
  if text_end > at then subtree:add(encrypted, buffer(at, text_end - at)) end
  if whole then subtree:add(tag, buffer(text_end, TAG)) end
  header:append_text(string.format(", %s, key %d", ciphers[cipher] or "unknown cipher", number))

  local what = string.format("sealed %s, spi 0x%08x key %d iv %d", names["Sealed contents"][content] or "unknown content", spi, number, low)
  local packet = {
    clear = before .. buffer:raw(0, at), text = buffer:raw(at, text_end - at), tag = whole and buffer:raw(text_end, TAG) or nil,
    spi = buffer:raw(8, 4), low = low, names_itself = content == 0 and text_end >= at + 12,
  }
  local found = open_once(packet, string.format("%d/%d/%d", spi, cipher, number), pinfo)
  if not found then return what .. ", encrypted" end
  if not found.number then
    if not whole then
      header:add_proto_expert_info(cut)
      return what .. ", encrypted"
    end
    header:add(authentic, false):set_generated()
    header:add_proto_expert_info(forged)
    return what .. ", not authentic"
  end
  header:add(whole_iv, UInt64.new(found.number % TWO_32, math.floor(found.number / TWO_32))):set_generated()
  if found.authentic then
    header:add(authentic, true):set_generated()
    header:append_text(", authentic")
  else
    header:add_proto_expert_info(unchecked)
  end
  if packet.text == "" then return "sealed, empty" end
  local inside = gcm.decrypt(found.key.aes, nonce_of(packet.spi, found.number), packet.text)
  local inside_buffer = ByteArray.new(inside, true):tvb("Decrypted")
  if content == 1 then
    frame_inside:call(inside_buffer, pinfo, tree)
    return nil
  end
  return "sealed " .. dissect_inside(inside_buffer, pinfo, subtree)
end

local function dissect_packet(buffer, pinfo, tree, before)
  if buffer:len() == 0 then return 0 end
  local type = buffer(0, 1):uint()
  if not names["Packet types"][type] then return 0 end
  pinfo.cols.protocol = "Weft"
  local subtree, info = tree:add(weft, buffer(), "Weft transport"), nil
  if type == kind.sealed then info = dissect_sealed(subtree, buffer, pinfo, tree, before, dissect_clear)
  else info = dissect_clear(buffer, pinfo, subtree) end
  if info then
    pinfo.cols.info = info
    subtree:append_text(": " .. info)
  end
  return buffer:len()
end

function weft.dissector(buffer, pinfo, tree)
  return dissect_packet(buffer, pinfo, tree, "")
end

-- Returns true if the buffer can be a Weft packet; other packets are left to other dissectors.
local function looks_like_weft(buffer)
  local length = buffer:reported_len()
  if buffer:len() < 12 then return false end
  local type, version = buffer(0, 1):uint(), buffer(1, 1):bitfield(0, 4)
  if version ~= 1 then return false end
  if type == kind.data then
    local follows = buffer(3, 1):uint()
    return follows <= 2 and length >= 16 + (follows > 0 and 16 or 0) + (follows == 2 and 24 or 0)
  elseif type == kind.ack then
    return length >= 32 and buffer:len() >= 32 and length == 32 + 4 * buffer(26, 2):bitfield(6, 4)
  elseif type == kind.request or type == kind.challenge or type == kind.accept then
    return length >= 44
  elseif type == kind.sealed then
    return buffer(1, 1):bitfield(4, 4) <= 1 and buffer(3, 1):uint() <= 1 and length >= 28
  end
  return type <= 8 and type >= kind.reject and length >= 12
end

weft:register_heuristic("udp", function(buffer, pinfo, tree)
  if not looks_like_weft(buffer) then return false end
  weft.dissector(buffer, pinfo, tree)
  return true
end)

-- Simulated hosts receive on the port of RoCEv2, which Wireshark assigns to another dissector. No RoCEv2 packet passes
-- looks_like_weft: those that begin with 1 to 8 and a pad count of one have other lengths, and in those that begin with
-- 9 the third and fourth byte are a partition key, which is nearly always 0xffff.
local ports = DissectorTable.get("udp.port")
local roce = ports:get_dissector(4791)
local shared = Proto("weft_or_roce", "Weft transport or RoCEv2")
function shared.dissector(buffer, pinfo, tree)
  if looks_like_weft(buffer) or not roce then return weft.dissector(buffer, pinfo, tree) end
  -- The RoCEv2 dissector raises an error on a truncated packet.
  local whole, used = pcall(roce.call, roce, buffer, pinfo, tree)
  if not whole then tree:add_proto_expert_info(cut) end
  return whole and used or buffer:len()
end
ports:add(4791, shared)
-- VXLAN whose P bit announces a next protocol instead of a frame carries packets of the transport, encrypted or not.
-- All other VXLAN goes to Wireshark's dissector.
local vxlan = ports:get_dissector(4789)
local overlay = Proto("weft_overlay", "Weft overlay")
local next_weft
for number, name in pairs(names["VXLAN next protocols"]) do
  if name == "weft" then next_weft = number end
end

local function next_protocol(buffer)
  if buffer:len() < headers.vxlan.length or buffer(0, 1):bitfield(5, 1) == 0 then return nil end
  return buffer(3, 1):uint()
end

function overlay.dissector(buffer, pinfo, tree)
  local follows = next_protocol(buffer)
  if follows ~= next_weft then
    -- The VXLAN dissector raises an error on a truncated packet.
    local whole, used = pcall(vxlan.call, vxlan, buffer, pinfo, tree)
    if not whole then tree:add_proto_expert_info(cut) end
    return whole and used or buffer:len()
  end
  local subtree = tree:add(overlay, buffer(0, headers.vxlan.length), "Weft overlay")
  add(subtree, buffer, 0, "vxlan")
  subtree:append_text(string.format(", network %d", buffer(4, 3):uint()))
  if buffer:len() > headers.vxlan.length then
    dissect_packet(buffer(headers.vxlan.length):tvb(), pinfo, tree, buffer:raw(0, headers.vxlan.length))
  end
  return buffer:len()
end
ports:add(4789, overlay)
-- "Decode As" may select Weft for captures of other versions.
ports:add_for_decode_as(weft)
