-- The gate on Redis: this file and gate.lua decide which client gets a slot. They come before the script of each
-- operation. Tests check them against semafor-core, operation by operation.
--
-- Shared with the Python library asyncio-advanced-semaphores, whose processes run their own scripts on these keys:
--   MAIN     zset    the holders: member -> when it counts as dead
--   TTL      zset    id -> when its lease ends
--   MAX      string  number of slots, for Python's statistics
--   WAITING  zset    the line: member -> arrival
--   BEATS    zset    the waiters: member -> when it counts as dead
--   <namespace>:acquisition_notification:<id>  list  gets an element when a waiter is granted a slot
-- Used only by our scripts, so that the shared keys keep the format that Python expects:
--   INFO     string  number of slots, fencing counter, totals, packed; then the slot numbers in use, as bits
--   RECORDS  hash    id -> what it asked for, what it was granted, and details about its process
--   ENDINGS  zset    id -> how it ended, if it did not end itself
--   TIMES    hash    histograms of waits and holds
--   OWN      zset    each of our ids that holds or waits -> when its lease ends or it counts as dead
--
-- The fields of INFO and RECORDS are listed in src/redis/script/schema.rs. A line between `---` is replaced by code
-- generated from that list.
--
-- A weight of w is w members: `id`, `id#00001` … They have the same score, so they stand together in line, in this
-- order. Of a weight above VISIBLE, Python's clients see only VISIBLE members, and INFO counts the rest: otherwise a
-- heartbeat of a large weight would be expensive.
--
-- Python's scripts set expiries of the shared keys to their caller's needs, and remove members that are dead by their
-- caller's clock. So RECORDS and OWN, which only we write, say what our clients hold: a lease of ours that has not
-- ended by the server's clock is put back. A key of a wrong type fails a request for a slot before it has changed
-- anything. A release may fail half-way: gate.repair completes it once the wrong key is gone.
--
-- Each run of a script starts from nothing, and creating functions and tables is most of its work. So queue.lua and
-- release.lua begin with fast paths for the most frequent cases; the rest of the gate is created only after them.

local call = redis.call
local MAIN, TTL, MAX, WAITING, BEATS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local INFO, RECORDS, ENDINGS, TIMES, OWN = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local NAMESPACE = ARGV[1]
local NOW, NOW_TEXT = SECONDS + MICROS / 1000000, SECONDS .. '.' .. MICROS -- seconds are the unit of all scores

local GRACE = 10 -- seconds for a waiter to confirm a grant; Python's waiters look every second
local SPARE = 10 -- seconds that keys outlive their content
local KEPT = 3600 -- seconds that endings, statistics and the like are remembered
local LATE = 60 -- seconds; no request is delayed on its way for longer

-- INFO: the fields that the fast paths use (SHORT), then the other fields from REST on, then the bits from BITS on.
--- INFO formats ---
local info = call('GET', INFO) or ''

-- Takes the lowest free slot number. Returns it, and the new bits.
local function occupy(bits)
    local at = 1
    if #bits > 512 then
        -- With thousands of holders, most bytes are full, and a pattern would look at each of them.
        local full = string.rep('\255', 512)
        while string.sub(bits, at, at + 511) == full do
            at = at + 512
        end
    end
    at = string.find(bits, '[^\255]', at) or #bits + 1
    local byte, slot, bit = string.byte(bits, at) or 0, (at - 1) * 8, 1
    while math.floor(byte / bit) % 2 == 1 do
        slot, bit = slot + 1, bit * 2
    end
    return slot, string.sub(bits, 1, at - 1) .. string.char(byte + bit) .. string.sub(bits, at + 1)
end

-- Takes this slot number, if it is free.
local function occupy_number(bits, slot)
    local at, bit = math.floor(slot / 8) + 1, 2 ^ (slot % 8)
    bits = bits .. string.rep('\0', at - #bits)
    local byte = string.byte(bits, at)
    if math.floor(byte / bit) % 2 == 1 then
        return bits
    end
    return string.sub(bits, 1, at - 1) .. string.char(byte + bit) .. string.sub(bits, at + 1)
end

local function vacate(bits, slot)
    local at, bit = math.floor(slot / 8) + 1, 2 ^ (slot % 8)
    local byte = string.byte(bits, at) or 0
    if math.floor(byte / bit) % 2 == 0 then
        return bits
    end
    return string.sub(bits, 1, at - 1) .. string.char(byte - bit) .. string.sub(bits, at + 1)
end

-- Histograms with the same buckets as in semafor-core: four per doubling from 1024 ns upwards.
local function count_time(kind, nanos)
    local bucket = 0
    if nanos >= 1024 then
        local mantissa, exponent = math.frexp(nanos)
        bucket = 1 + (exponent - 11) * 4 + math.floor((mantissa * 2 - 1) * 4)
    end
    if redis.pcall('HINCRBY', TIMES, kind .. bucket, 1) == 1 then
        call('PEXPIRE', TIMES, KEPT * 1000)
    end
end
