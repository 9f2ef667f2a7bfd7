-- Who gets the slot, on Redis: this, and gate.lua. In front of each operation; checked against semafor-core, operation by
-- operation.
--
-- Shared with the Python library asyncio-advanced-semaphores, whose processes run their own scripts on these:
--   MAIN     zset    who holds: member -> when it is taken for dead
--   TTL      zset    id -> when its time to live is up
--   MAX      string  number of slots, for their statistics
--   WAITING  zset    the line: member -> arrival
--   BEATS    zset    who waits: member -> when it is taken for dead
--   <namespace>:acquisition_notification:<id>  list  gets an element when a slot is granted to somebody in line
-- Ours alone, so that theirs stay as they know them:
--   INFO     string  number of slots, fencing counter, totals, packed; then the slot numbers in use, as bits
--   RECORDS  hash    id -> what it asked for, what it got, who it is
--   ENDINGS  zset    id -> how it ended, if not by its own doing
--   TIMES    hash    histograms of waits and holds
--   OWN      zset    every id of ours that holds or waits -> when its lease or its life ends
--
-- The fields of INFO and RECORDS are listed in src/redis/script/schema.rs. A line between `---` is replaced by code made from
-- that list.
--
-- A weight of w is w members: `id`, `id#00001` … They have one score, so they stand together in line, in this order. Of a
-- weight beyond VISIBLE the others see only so many members, and INFO counts the rest: a heartbeat must not cost what it weighs.
--
-- Python's scripts set the expiry of the shared keys as suits their caller, and remove what is dead by their caller's clock.
-- So RECORDS and OWN, which only we touch, say what ours hold: a lease of ours that lives by the server's clock is put back.
-- A key of a wrong type stops a request for a slot before it has changed anything. What ends something may stop half-way: what
-- it has not done, gate.mend sets right once the key is gone.
--
-- A script starts from nothing each time, and making functions and tables is most of its work. So queue.lua and release.lua
-- begin with short ways, for what happens most; only behind them, everything else is brought in.

local call = redis.call
local MAIN, TTL, MAX, WAITING, BEATS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local INFO, RECORDS, ENDINGS, TIMES, OWN = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local NAMESPACE = ARGV[1]
local NOW, NOW_TEXT = SECONDS + MICROS / 1000000, SECONDS .. '.' .. MICROS -- seconds are the unit of all scores

local GRACE = 10 -- for a waiter to show up after the grant, in seconds; those of Python look every second
local SPARE = 10 -- keys outlive their content by so much
local KEPT = 3600 -- what is only remembered, is remembered for so long
local LATE = 60 -- no request is held up on its way for longer

-- INFO: the fields that the short ways use (SHORT), then the other fields from REST on, then the bits from BITS on.
--- INFO formats ---
local info = call('GET', INFO) or ''

-- Takes the lowest slot number that is free. Returns it, and the bits with it.
local function occupy(bits)
    local at = 1
    if #bits > 512 then
        -- With thousands of holders, most bytes are full, and a pattern looks at each of them.
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

-- Takes a certain number, if it is free.
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

-- Histograms as semafor-core has them: four buckets per doubling from 1024 ns upwards.
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
