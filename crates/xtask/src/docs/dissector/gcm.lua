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
