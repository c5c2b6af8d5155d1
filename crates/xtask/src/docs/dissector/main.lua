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

-- TABLES

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

-- SEALED

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
