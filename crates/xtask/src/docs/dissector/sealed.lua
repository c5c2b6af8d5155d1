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
