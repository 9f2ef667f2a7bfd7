-- Who gets the slot, on Redis. Put in front of each operation; checked against semafor-core, operation by operation.
--
-- Shared with the Python library asyncio-advanced-semaphores, whose processes run their own scripts on these:
--   MAIN     zset    who holds: member -> when it is taken for dead
--   TTL      zset    id -> when its time to live is up
--   MAX      string  number of slots, for their statistics
--   WAITING  zset    the line: member -> arrival
--   BEATS    zset    who waits: member -> when it is taken for dead
--   <namespace>:acquisition_notification:<id>  list  gets an element when a slot is granted to somebody in line
-- Ours alone, so that theirs stay as they know them:
--   INFO     hash    number of slots, fencing counter, totals
--   RECORDS  hash    id -> what it asked for, what it got, who it is
--   SLOTS    bitmap  slot numbers in use
--   ENDINGS  zset    id -> how it ended, if not by its own doing
--   TIMES    hash    histograms of waits and holds
--
-- A weight of w is w members: `id`, `id#00001` … They have one score, so they stand together in line, in this order.
-- Whatever is read for a decision is read before the first write: a key of a wrong type stops a script that has done nothing.

local call = redis.call
local MAIN, TTL, MAX, WAITING, BEATS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local INFO, RECORDS, SLOTS, ENDINGS, TIMES = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local NAMESPACE = ARGV[1]
local NOW = server_now()

local GRACE = 10 -- for a waiter to show up after the grant, in seconds; those of Python look every second
local SPARE = 10 -- keys outlive their content by so much
local KEPT = 3600 -- what is only remembered, is remembered for so long
local STEP = 60 -- expiries are extended in steps of this
local REMEMBERED = 1024 -- endings
local RELEASED, EXPIRED, EVICTED, VANISHED, CLOSED, TOO_HEAVY, UNWANTED = 0, 1, 2, 3, 4, 5, 6

local FIELDS = {
    'limit', 'closed', 'epoch', 'fence', 'max_waiting', 'ours', 'keep_until', 'forgot',
    'granted', 'released', 'queued', 'expired', 'evicted', 'handed_on', 'timed_out', 'cancelled', 'refused',
    'wait_total', 'wait_max', 'hold_total', 'hold_max',
}

-- What INFO says, and what is to be written back to it.
local gate, dirty = {}, {}
do
    local values = call('HMGET', INFO, unpack(FIELDS))
    for i = 1, #FIELDS do
        gate[FIELDS[i]] = tonumber(values[i]) or 0
    end
end
local held = call('ZCARD', MAIN)
local is_line_empty = call('ZCARD', WAITING) == 0

local function set(field, value)
    gate[field] = value
    dirty[field] = true
end

local function count(field)
    set(field, gate[field] + 1)
end

-- Ends every script that may have written.
local function save()
    local changes = {}
    for field in pairs(dirty) do
        changes[#changes + 1] = field
        changes[#changes + 1] = gate[field]
    end
    if #changes > 0 then
        call('HSET', INFO, unpack(changes))
        dirty = {}
    end
end

-- Keys live as long as what is in them. An expiry is only ever extended: another caller may need it longer. A key without
-- any was made by us just now.
local function extend(key, ms)
    local left = call('PTTL', key)
    if left >= -1 and left < ms then
        call('PEXPIRE', key, ms)
    end
end

local function keep_all(seconds)
    local ms = math.ceil((seconds + SPARE) * 1000)
    for i = 1, 5 do
        extend(KEYS[i], ms)
    end
    extend(RECORDS, ms)
    extend(SLOTS, ms)
    local longer = math.max(ms, KEPT * 1000)
    for _, key in ipairs({ INFO, ENDINGS, TIMES }) do
        extend(key, longer)
    end
end

-- For somebody who needs the keys for so long. Mostly they are kept that long already.
local function keep(seconds)
    if gate.keep_until < NOW + seconds then
        set('keep_until', NOW + seconds + STEP)
        call('SET', MAX, gate.limit, 'KEEPTTL')
        save()
        keep_all(seconds + STEP)
    end
end

local function keep_new(key, seconds)
    call('PEXPIRE', key, math.ceil((math.max(seconds, gate.keep_until - NOW) + SPARE) * 1000))
end

local function id_of(member)
    return string.match(member, '^[^#]+') or member
end

local function member_of(id, part)
    return part == 0 and id or string.format('%s#%05d', id, part)
end

local function put(key, id, weight, score)
    for part = 0, weight - 1 do
        call('ZADD', key, score, member_of(id, part))
    end
end

local function take(key, id, weight)
    local taken = 0
    for part = 0, weight - 1 do
        taken = taken + call('ZREM', key, member_of(id, part))
    end
    return taken
end

local function parts_in(key, id, weight)
    local found = 0
    for part = 0, weight - 1 do
        if call('ZSCORE', key, member_of(id, part)) then
            found = found + 1
        end
    end
    return found
end

local NOT_YET = -1 -- the slot of somebody who waits

-- Somebody without a record is no client of ours: one slot, no more said.
local function record_of(id)
    local text = call('HGET', RECORDS, id)
    if not text then
        return { weight = 1, ttl = 0, heartbeat = 0, since = NOW, slot = NOT_YET, token = 0, waited = 0 }
    end
    local weight, ttl, heartbeat, since, slot, token, waited, who =
        string.match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)$')
    return {
        is_ours = true,
        weight = tonumber(weight),
        ttl = tonumber(ttl),
        heartbeat = tonumber(heartbeat),
        since = tonumber(since),
        slot = tonumber(slot),
        token = tonumber(token),
        waited = tonumber(waited),
        who = who,
    }
end

local function write_record(id, record)
    local text = string.format('%d %.6f %.6f %.6f %d %.0f %.6f %s', record.weight, record.ttl, record.heartbeat,
        record.since, record.slot, record.token, record.waited, record.who)
    if call('HSET', RECORDS, id, text) == 1 and call('HLEN', RECORDS) == 1 then
        keep_new(RECORDS, math.max(record.heartbeat, record.ttl))
    end
end

-- Histograms as semafor-core has them: four buckets per doubling from 1024 ns upwards.
local function note_time(kind, seconds)
    local nanos = math.max(math.floor(seconds * 1000000000), 0)
    local bucket = 0
    if nanos >= 1024 then
        local mantissa, exponent = math.frexp(nanos)
        bucket = 1 + (exponent - 11) * 4 + math.floor((mantissa * 2 - 1) * 4)
    end
    if call('HINCRBY', TIMES, kind .. bucket, 1) == 1 then
        extend(TIMES, KEPT * 1000)
    end
    set(kind .. '_total', gate[kind .. '_total'] + nanos)
    set(kind .. '_max', math.max(gate[kind .. '_max'], nanos))
end

-- Ids of ours name their process; it listens on this channel. Whoever may not publish does without: heartbeats tell, too.
local function tell(id, ...)
    redis.pcall('PUBLISH', NAMESPACE .. ':semafor:' .. string.sub(id, 9, 20), table.concat({ ... }, ' '))
end

local function notification_of(id)
    return NAMESPACE .. ':acquisition_notification:' .. id
end

local function remember(id, how)
    call('ZADD', ENDINGS, math.floor(NOW) * 8 + how, id)
    if call('ZREMRANGEBYRANK', ENDINGS, 0, -REMEMBERED - 1) > 0 then
        set('forgot', 1)
    end
    call('PEXPIRE', ENDINGS, KEPT * 1000)
end

-- How an id ended that holds nothing: RELEASED if it ended itself, or was never there; -1 if nobody knows any more.
local function ending_of(id)
    local score = call('ZSCORE', ENDINGS, id)
    if score then
        return tonumber(score) % 8
    end
    return gate.forgot == 1 and -1 or RELEASED
end

-- How many stand in line: a weight has several members there, and is one.
local function line_length()
    local length = 0
    for _, member in ipairs(call('ZRANGE', WAITING, 0, -1)) do
        if id_of(member) == member then
            length = length + 1
        end
    end
    return length
end

-- The lowest number that nobody has. If there is none below the limit, some belong to ids that Python's scripts removed.
local function free_slot()
    local slot = call('BITPOS', SLOTS, 0)
    if slot < gate.limit then
        return slot
    end
    call('DEL', SLOTS)
    for _, id in ipairs(call('HKEYS', RECORDS)) do
        local record = record_of(id)
        if record.slot ~= NOT_YET then
            if call('ZSCORE', MAIN, id) then
                call('SETBIT', SLOTS, record.slot, 1)
            else
                call('HDEL', RECORDS, id)
                set('ours', math.max(gate.ours - record.weight, 0))
            end
        end
    end
    keep_new(SLOTS, 0)
    return call('BITPOS', SLOTS, 0)
end

-- How long a holder stays on without a sign of life.
local function lease_of(record)
    if record.ttl > 0 then
        return math.min(record.heartbeat, record.ttl)
    end
    return record.heartbeat
end

-- What only ids of ours have: number, token, time to live, statistics. The slots are in MAIN already.
local function equip(id, record)
    record.slot = free_slot()
    record.token = math.max(gate.fence + 1, math.floor(NOW * 1000000))
    record.since = NOW
    call('SETBIT', SLOTS, record.slot, 1)
    if record.ttl > 0 then
        call('ZADD', TTL, NOW + record.ttl, id)
        extend(TTL, math.ceil((record.ttl + SPARE) * 1000))
    end
    write_record(id, record)
    set('fence', record.token)
    set('ours', gate.ours + record.weight)
    count('granted')
end

-- To somebody who asks right now, and gets the answer right now.
local function grant_at_once(id, record)
    put(MAIN, id, record.weight, NOW + lease_of(record))
    if held == 0 then
        keep_new(MAIN, math.max(record.heartbeat, record.ttl))
    end
    held = held + record.weight
    equip(id, record)
end

-- To somebody in line. Reserved for a grace only: it may be dead. Its next heartbeat makes it last.
local function grant_to_waiter(id, record)
    local lease = math.min(record.is_ours and lease_of(record) or GRACE, GRACE)
    local is_new = held == 0
    local left = take(WAITING, id, record.weight)
    take(BEATS, id, record.weight)
    put(MAIN, id, record.weight, NOW + lease)
    held = held + left
    if is_new then
        keep_new(MAIN, math.max(record.heartbeat, record.ttl, GRACE))
    end
    if record.is_ours then
        record.waited = NOW - record.since
        note_time('wait', record.waited)
        equip(id, record)
        tell(id, 'granted', id, record.slot, string.format('%.0f', record.token),
            string.format('%.6f', record.waited), string.format('%.6f', NOW), string.format('%.6f', NOW + lease))
    end
    local notification = notification_of(id)
    call('RPUSH', notification, '1')
    call('PEXPIRE', notification, (GRACE + SPARE) * 1000)
end

-- Ends a grant. `how` is a total of INFO; `loss` says what became of it if its holder did not end it.
local function end_grant(id, record, how, loss)
    held = held - take(MAIN, id, record.weight)
    call('ZREM', TTL, id)
    if record.waited > 0 or not record.is_ours then
        call('DEL', notification_of(id))
    end
    if record.is_ours then
        call('HDEL', RECORDS, id)
        if record.slot ~= NOT_YET then
            call('SETBIT', SLOTS, record.slot, 0)
            set('ours', math.max(gate.ours - record.weight, 0))
            count(how)
            note_time('hold', NOW - record.since)
        end
    end
    if loss then
        remember(id, loss)
        tell(id, 'lost', id, loss)
    end
end

-- Takes somebody out of the line without a grant; what Python's scripts granted of a weight goes, too.
local function leave_line(id, record)
    take(WAITING, id, record.weight)
    take(BEATS, id, record.weight)
    held = held - take(MAIN, id, record.weight)
    call('HDEL', RECORDS, id)
    call('DEL', notification_of(id))
end

-- Grants to the head of the line for as long as it fits. A dead head is passed over.
local function serve()
    while gate.limit > held and gate.closed == 0 do
        local head = call('ZRANGE', WAITING, 0, 0)[1]
        if not head then
            is_line_empty = true
            return
        end
        local id = id_of(head)
        local record = record_of(id)
        local alive_until = tonumber(call('ZSCORE', BEATS, head) or 0)
        if alive_until <= NOW then
            leave_line(id, record)
            call('ZREM', WAITING, head)
            count('cancelled')
        else
            local needs = record.weight == 1 and 1 or parts_in(WAITING, id, record.weight)
            if gate.limit - held < needs then
                return
            end
            grant_to_waiter(id, record)
        end
    end
end

local function sweep_leases()
    for _, id in ipairs(call('ZRANGEBYSCORE', TTL, '-inf', NOW, 'LIMIT', 0, 1000)) do
        end_grant(id, record_of(id), 'expired', EXPIRED)
        serve()
    end
end

-- Holders and waiters that gave no sign of life for too long.
local function sweep_dead()
    for _, member in ipairs(call('ZRANGEBYSCORE', MAIN, '-inf', NOW, 'LIMIT', 0, 1000)) do
        -- The parts of a weight go together.
        if call('ZSCORE', MAIN, member) then
            local id = id_of(member)
            local record = record_of(id)
            if record.is_ours and record.slot == NOT_YET then
                leave_line(id, record)
                count('cancelled')
            else
                end_grant(id, record, 'expired', VANISHED)
            end
            held = held - call('ZREM', MAIN, member)
        end
    end
    if is_line_empty then
        return
    end
    for _, member in ipairs(call('ZRANGEBYSCORE', BEATS, '-inf', NOW, 'LIMIT', 0, 1000)) do
        if call('ZREM', BEATS, member) == 1 then
            local id = id_of(member)
            leave_line(id, record_of(id))
            call('ZREM', WAITING, member)
            count('cancelled')
        end
    end
end

-- Ends what is due, and serves the line.
local function sweep()
    sweep_leases()
    sweep_dead()
    if not is_line_empty then
        serve()
        is_line_empty = call('ZCARD', WAITING) == 0
    end
end

-- Somebody to whom Python's scripts granted all it waits for becomes a holder like any other of ours.
local function adopt(id, record)
    if record.slot == NOT_YET then
        record.waited = NOW - record.since
        note_time('wait', record.waited)
        equip(id, record)
    end
end

-- When a sweep will find something to do, as text; empty if never.
local function next_deadline()
    local earliest = math.huge
    for _, key in ipairs({ TTL, MAIN, BEATS }) do
        local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
        if first then
            earliest = math.min(earliest, tonumber(first))
        end
    end
    return earliest < math.huge and string.format('%.6f', earliest) or ''
end

local function now_text()
    return string.format('%.6f', NOW)
end

-- True if clients hold slots whose releases tell nobody: then MAIN has to be watched.
local function has_foreign_holders()
    return held > gate.ours and 1 or 0
end

-- Opens the name on behalf of a handle. `asked` slots, 0 if it does not say; `opened` if it did this before, and then a
-- different number of slots means only that somebody resized it. Returns what is wrong, or nothing.
local function enter(asked, opened, epoch, max_waiting)
    local is_idle = held == 0 and is_line_empty
    if gate.limit == 0 then
        local theirs = not is_idle and tonumber(call('GET', MAX) or nil)
        if theirs and asked > 0 and theirs ~= asked and not opened then
            return { 'mismatch', theirs }
        end
        local limit = asked > 0 and asked or theirs
        if not limit then
            return { 'unset' }
        end
        set('limit', limit)
        set('epoch', math.max(epoch, 0))
    elseif opened and epoch < gate.epoch then
        return { 'closed' }
    elseif gate.closed == 1 then
        if opened then
            return { 'closed' }
        elseif held > 0 then
            return { 'closing', held }
        end
        set('closed', 0)
        set('epoch', gate.epoch + 1)
        if asked > 0 then
            set('limit', asked)
        end
    elseif opened then
        if epoch > gate.epoch then
            set('epoch', epoch)
        end
    elseif asked > 0 and asked ~= gate.limit then
        if not is_idle then
            return { 'mismatch', gate.limit }
        end
        set('limit', asked)
        set('keep_until', 0)
    end
    if not opened and max_waiting >= 0 then
        set('max_waiting', max_waiting + 1)
    end
end
