-- The whole gate. See prelude.lua.

local STEP = 60 -- expiries are extended in steps of this
local REMEMBERED = 1024 -- endings
local NOT_YET = -1 -- the slot of somebody who waits
local RELEASED, EXPIRED, EVICTED, VANISHED, CLOSED, TOO_HEAVY, UNWANTED = 0, 1, 2, 3, 4, 5, 6 -- how an id ended

local gate
do
    local text = #info < BITS and info .. string.rep('\0', BITS - 1 - #info) or info
    local limit, closed, epoch, fence, ours, keep_until, due, unwanted, granted, released, hold_total, hold_max, wait_total,
        wait_max, max_waiting, forgot, queued, expired, evicted, handed_on, timed_out, cancelled, refused =
        struct.unpack(LONG, text)
    gate = {
        limit = limit, -- number of slots; 0 if the name is new
        closed = closed, -- 1 if it is
        epoch = epoch, -- which life of the name this is: closing ends one
        fence = fence, -- the newest fencing token
        ours = ours, -- how many of the slots held are held by clients of ours
        keep_until = keep_until, -- keys will not expire before
        due = due, -- no lease or life of ours ends before
        unwanted = unwanted, -- when somebody last gave up before it was known here
        granted = granted,
        released = released,
        hold_total = hold_total,
        hold_max = hold_max,
        wait_total = wait_total,
        wait_max = wait_max,
        max_waiting = max_waiting, -- bound of the line, plus 1; 0 if there is none
        forgot = forgot, -- 1 if some endings are not remembered any more
        queued = queued,
        expired = expired,
        evicted = evicted,
        handed_on = handed_on,
        timed_out = timed_out,
        cancelled = cancelled,
        refused = refused,
        bits = string.sub(info, BITS),
        held = call('ZCARD', MAIN),
        is_line_empty = call('ZCARD', WAITING) == 0,
        -- Room for the functions below: a table that grows is copied again and again.
        save = 0, check_types = 0, extend = 0, keep_all = 0, keep = 0, keep_new = 0, id_of = 0, member_of = 0, put = 0,
        take = 0, has_all = 0, record_of = 0, write_record = 0, lease_of = 0, note_time = 0, tell = 0, notification_of = 0,
        remember = 0, ending_of = 0, ids_in_line = 0, occupy = 0, find_lost_slots = 0, equip = 0, grant_at_once = 0,
        end_grant = 0, leave_line = 0, grant_to_waiter = 0, serve = 0, sweep_leases = 0, sweep_dead = 0, earliest_end = 0,
        sweep = 0, adopt = 0, next_deadline = 0, has_foreign_holders = 0, enter = 0, drop_notifications = 0, alert = 0,
        write_off = 0, ask_to_leave = 0, is_leaving = 0,
    }
end

-- If a key is something else than it should be, it shows before anything is written.
function gate.check_types()
    call('ZCARD', TTL)
    call('ZCARD', BEATS)
    call('ZCARD', ENDINGS)
    call('HLEN', RECORDS)
    call('HLEN', TIMES)
    call('GET', MAX)
end

-- Ends every script that may have changed something.
function gate.save()
    local g = gate
    if g.limit == 0 and g.closed == 0 then
        return -- nobody has opened the name, or not since the server forgot it
    end
    call('SET', INFO, struct.pack(LONG, g.limit, g.closed, g.epoch, g.fence, g.ours, g.keep_until, g.due, g.unwanted,
        g.granted, g.released, g.hold_total, g.hold_max, g.wait_total, g.wait_max, g.max_waiting, g.forgot, g.queued,
        g.expired, g.evicted, g.handed_on, g.timed_out, g.cancelled, g.refused) .. g.bits, 'KEEPTTL')
    if info == '' then
        gate.extend(INFO, KEPT)
    end
end

-- Keys live as long as what is in them. An expiry is only ever extended: another caller may need it longer. A key without
-- any was made by us just now.
function gate.extend(key, seconds)
    local ms = math.ceil(seconds * 1000)
    local left = call('PTTL', key)
    if left >= -1 and left < ms then
        call('PEXPIRE', key, ms)
    end
end

function gate.keep_all(seconds)
    for i = 1, #KEYS do
        local is_memory = KEYS[i] == INFO or KEYS[i] == ENDINGS or KEYS[i] == TIMES
        gate.extend(KEYS[i], is_memory and math.max(seconds, KEPT) or seconds + SPARE)
    end
end

-- For somebody who needs the keys for so long. Mostly they are kept that long already.
function gate.keep(seconds)
    if gate.keep_until < NOW + seconds then
        gate.keep_until = NOW + seconds + STEP
        call('SET', MAX, gate.limit, 'KEEPTTL')
        call('HSET', RECORDS, '', '') -- so that it is never empty, and made anew without an expiry
        gate.save()
        gate.keep_all(seconds + STEP)
    end
end

-- A key that was empty and is not any more has no expiry.
function gate.keep_new(key, seconds)
    call('PEXPIRE', key, math.ceil((math.max(seconds, gate.keep_until - NOW) + SPARE) * 1000))
end

function gate.id_of(member)
    return string.match(member, '^[^#]+') or member
end

function gate.member_of(id, part)
    return part == 0 and id or string.format('%s#%05d', id, part)
end

function gate.put(key, id, weight, score)
    for part = 0, weight - 1 do
        call('ZADD', key, score, gate.member_of(id, part))
    end
end

function gate.take(key, id, weight)
    local taken = 0
    for part = 0, weight - 1 do
        taken = taken + call('ZREM', key, gate.member_of(id, part))
    end
    return taken
end

function gate.has_all(key, id, weight)
    for part = 0, weight - 1 do
        if not call('ZSCORE', key, gate.member_of(id, part)) then
            return false
        end
    end
    return true
end

-- Somebody without a record is no client of ours: one slot, no more said.
function gate.record_of(id)
    local text = call('HGET', RECORDS, id)
    if not text then
        return { weight = 1, ttl = 0, heartbeat = 0, since = NOW, slot = NOT_YET, token = 0, waited = 0 }
    end
    local wish, weight, ttl, heartbeat, since, slot, token, waited, who =
        string.match(text, '^((%S+) (%S+) (%S+)) (%S+) (%S+) (%S+) (%S+) (.*)$')
    return {
        is_ours = true,
        wish = wish,
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

function gate.write_record(id, record)
    local since = record.since == NOW and NOW_TEXT or string.format('%.6f', record.since)
    local token = string.format('%.0f', record.token)
    call('HSET', RECORDS, id, record.wish .. ' ' .. since .. ' ' .. record.slot .. ' ' .. token .. ' ' .. record.waited .. ' '
        .. record.who)
end

-- How long a holder stays on without a sign of life.
function gate.lease_of(record)
    if record.ttl > 0 and record.ttl < record.heartbeat then
        return record.ttl
    end
    return record.heartbeat
end

function gate.note_time(kind, seconds)
    local nanos = math.max(math.floor(seconds * 1000000000), 0)
    count_time(kind, nanos)
    local total, max = kind .. '_total', kind .. '_max'
    gate[total] = gate[total] + nanos
    gate[max] = math.max(gate[max], nanos)
end

-- Ids of ours name their process; it listens on this channel. Whoever may not publish does without: heartbeats tell, too.
function gate.tell(id, ...)
    redis.pcall('PUBLISH', NAMESPACE .. ':semafor:' .. string.sub(id, 9, 20), table.concat({ ... }, ' '))
end

function gate.notification_of(id)
    return NAMESPACE .. ':acquisition_notification:' .. id
end

-- Python's scripts push to a list of each part of a weight.
function gate.drop_notifications(id, weight)
    for part = 0, weight - 1 do
        call('DEL', gate.notification_of(gate.member_of(id, part)))
    end
end

function gate.remember(id, how)
    call('ZADD', ENDINGS, math.floor(NOW) * 8 + how, id)
    if call('ZREMRANGEBYRANK', ENDINGS, 0, -REMEMBERED - 1) > 0 then
        gate.forgot = 1
    end
    call('PEXPIRE', ENDINGS, KEPT * 1000)
end

-- How an id ended that holds nothing: RELEASED if it ended itself, or was never there; -1 if nobody knows any more.
function gate.ending_of(id)
    local score = call('ZSCORE', ENDINGS, id)
    if score then
        return tonumber(score) % 8
    end
    return gate.forgot == 1 and -1 or RELEASED
end

-- Who stands in line: a weight has several members there, side by side, and is one. Python's scripts may have taken the first.
function gate.ids_in_line()
    local ids = {}
    for _, member in ipairs(call('ZRANGE', WAITING, 0, -1)) do
        local id = gate.id_of(member)
        if id ~= ids[#ids] then
            ids[#ids + 1] = id
        end
    end
    return ids
end

-- The lowest number that no holder of ours has. If there is none below the limit, some are those of ids that Python's scripts
-- removed.
function gate.occupy()
    local slot, bits = occupy(gate.bits)
    if slot >= gate.limit then
        gate.find_lost_slots()
        slot, bits = occupy(gate.bits)
    end
    gate.bits = bits
    return slot
end

function gate.find_lost_slots()
    local slots = {}
    gate.ours = 0
    for _, id in ipairs(call('HKEYS', RECORDS)) do
        local record = id ~= '' and gate.record_of(id)
        if record and record.slot ~= NOT_YET then
            if call('ZSCORE', MAIN, id) then
                slots[record.slot] = true
                gate.ours = gate.ours + record.weight
            else
                call('HDEL', RECORDS, id)
                gate.expired = gate.expired + 1
            end
        end
    end
    for slot = 0, #gate.bits * 8 - 1 do
        if not slots[slot] then
            gate.bits = vacate(gate.bits, slot)
        end
    end
end

-- What only ids of ours have: number, token, time to live, statistics. Their slots are in MAIN already.
function gate.equip(id, record)
    record.slot = gate.occupy()
    record.token = math.max(gate.fence + 1, SECONDS * 1000000 + MICROS)
    record.since = NOW
    if record.ttl > 0 then
        call('ZADD', TTL, NOW + record.ttl, id)
        gate.extend(TTL, record.ttl + SPARE)
    end
    gate.write_record(id, record)
    gate.fence = record.token
    gate.ours = gate.ours + record.weight
    gate.granted = gate.granted + 1
    gate.due = math.min(gate.due, NOW + gate.lease_of(record))
end

-- A holder that was promised time to leave when it is evicted has its slot for so long, and no longer. False if it was not,
-- or has been asked before.
function gate.ask_to_leave(id, record)
    local grace = tonumber(string.match(record.who or '', '"grace":([%d.]+)'))
    if not grace or gate.is_leaving(record) then
        return false
    end
    local ends = tonumber(call('ZSCORE', TTL, id) or math.huge)
    grace = math.min(grace, ends - NOW)
    record.ttl = grace
    record.wish = record.weight .. ' ' .. grace .. ' ' .. record.heartbeat
    record.who = string.gsub(record.who, '"grace":[%d.]+', '"leaving":true')
    call('ZADD', TTL, NOW + grace, id)
    gate.extend(TTL, grace + SPARE)
    -- It gives no sign of life any more.
    gate.put(MAIN, id, record.weight, NOW + grace)
    gate.write_record(id, record)
    gate.due = math.min(gate.due, NOW + grace)
    return true
end

function gate.is_leaving(record)
    return string.find(record.who or '', '"leaving":true', 1, true) ~= nil
end

-- To somebody who asks right now, and gets the answer right now.
function gate.grant_at_once(id, record)
    gate.put(MAIN, id, record.weight, NOW + gate.lease_of(record))
    if gate.held == 0 then
        gate.keep_new(MAIN, math.max(record.heartbeat, record.ttl))
    end
    gate.held = gate.held + record.weight
    gate.equip(id, record)
    gate.keep(math.max(record.heartbeat, record.ttl))
end

-- Ends a grant. `how` is one of the totals; `loss` says what became of it if its holder did not end it.
function gate.end_grant(id, record, how, loss)
    gate.held = gate.held - gate.take(MAIN, id, record.weight)
    if record.ttl > 0 or not record.is_ours then
        call('ZREM', TTL, id)
    end
    if record.waited > 0 or not record.is_ours then
        gate.drop_notifications(id, record.weight)
    end
    if record.is_ours then
        call('HDEL', RECORDS, id)
        if record.slot ~= NOT_YET then
            gate.bits = vacate(gate.bits, record.slot)
            gate.ours = math.max(gate.ours - record.weight, 0)
            gate[how] = gate[how] + 1
            gate.note_time('hold', NOW - record.since)
        end
    end
    if loss then
        gate.remember(id, loss)
        gate.tell(id, 'lost', id, loss)
    end
end

-- If clients hold slots whose releases tell nobody, the first in line watches them. It is told so whenever it may be another.
function gate.alert()
    local head = gate.has_foreign_holders() == 1 and call('ZRANGE', WAITING, 0, 0)[1]
    if head and call('HEXISTS', RECORDS, gate.id_of(head)) == 1 then
        gate.tell(head, 'watch', gate.id_of(head))
    end
end

-- Takes somebody out of the line without a grant; what Python's scripts granted of a weight goes, too.
function gate.leave_line(id, record)
    gate.take(WAITING, id, record.weight)
    gate.take(BEATS, id, record.weight)
    gate.held = gate.held - gate.take(MAIN, id, record.weight)
    call('HDEL', RECORDS, id)
    gate.drop_notifications(id, record.weight)
    gate.alert()
end

-- Python's scripts took away what it had, or where it stood, and told nobody. Returns how that was, if it had something.
function gate.write_off(id, record)
    if record.slot ~= NOT_YET then
        gate.end_grant(id, record, 'expired')
        return record.ttl > 0 and record.since + record.ttl <= NOW and EXPIRED or VANISHED
    elseif record.is_ours then
        gate.leave_line(id, record)
    end
end

-- To somebody in line. Reserved for a grace only: it may be dead. Its next heartbeat makes it last.
function gate.grant_to_waiter(id, record)
    local lease = math.min(record.is_ours and gate.lease_of(record) or GRACE, GRACE)
    local is_new = gate.held == 0
    gate.held = gate.held + gate.take(WAITING, id, record.weight)
    gate.take(BEATS, id, record.weight)
    gate.put(MAIN, id, record.weight, NOW + lease)
    if is_new then
        gate.keep_new(MAIN, math.max(record.heartbeat, record.ttl, GRACE))
    end
    if record.is_ours then
        record.waited = NOW - record.since
        gate.note_time('wait', record.waited)
        gate.equip(id, record)
        gate.due = math.min(gate.due, NOW + lease)
        gate.tell(id, 'granted', id, record.slot, string.format('%.0f', record.token), record.waited, NOW_TEXT,
            string.format('%.6f', NOW + lease))
    end
    local notification = gate.notification_of(id)
    call('RPUSH', notification, '1')
    call('PEXPIRE', notification, (GRACE + SPARE) * 1000)
    gate.alert()
end

-- Grants to the head of the line for as long as it fits. A dead head is passed over.
function gate.serve()
    while gate.limit > gate.held and gate.closed == 0 do
        local head = call('ZRANGE', WAITING, 0, 0)[1]
        if not head then
            gate.is_line_empty = true
            return
        end
        local id = gate.id_of(head)
        local record = gate.record_of(id)
        if tonumber(call('ZSCORE', BEATS, head) or 0) <= NOW then
            gate.leave_line(id, record)
            call('ZREM', WAITING, head)
            gate.cancelled = gate.cancelled + 1
        else
            local needs = 0
            for part = 0, record.weight - 1 do
                needs = needs + (call('ZSCORE', WAITING, gate.member_of(id, part)) and 1 or 0)
            end
            if gate.limit - gate.held < needs then
                return
            end
            gate.grant_to_waiter(id, record)
        end
    end
end

function gate.sweep_leases()
    for _, id in ipairs(call('ZRANGEBYSCORE', TTL, '-inf', NOW, 'LIMIT', 0, 1000)) do
        gate.end_grant(id, gate.record_of(id), 'expired', EXPIRED)
        call('ZREM', TTL, id)
        gate.serve()
    end
end

-- Holders and waiters that gave no sign of life for too long.
function gate.sweep_dead()
    for _, member in ipairs(call('ZRANGEBYSCORE', MAIN, '-inf', NOW, 'LIMIT', 0, 1000)) do
        -- The parts of a weight go together.
        if call('ZSCORE', MAIN, member) then
            local id = gate.id_of(member)
            local record = gate.record_of(id)
            if record.is_ours and record.slot == NOT_YET then
                gate.leave_line(id, record)
                gate.cancelled = gate.cancelled + 1
            else
                gate.end_grant(id, record, 'expired', VANISHED)
            end
            gate.held = gate.held - call('ZREM', MAIN, member)
        end
    end
    if gate.is_line_empty then
        if call('ZCARD', BEATS) > 0 then
            call('DEL', BEATS) -- whoever is in it does not wait any more
        end
        return
    end
    for _, member in ipairs(call('ZRANGEBYSCORE', BEATS, '-inf', NOW, 'LIMIT', 0, 1000)) do
        if call('ZREM', BEATS, member) == 1 then
            local id = gate.id_of(member)
            gate.leave_line(id, gate.record_of(id))
            call('ZREM', WAITING, member)
            gate.cancelled = gate.cancelled + 1
        end
    end
end

function gate.earliest_end()
    local earliest = math.huge
    for _, key in ipairs({ TTL, MAIN, BEATS }) do
        local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
        if first then
            earliest = math.min(earliest, tonumber(first))
        end
    end
    return earliest
end

-- Ends what is due, and serves the line.
function gate.sweep()
    gate.sweep_leases()
    gate.sweep_dead()
    if not gate.is_line_empty then
        gate.serve()
        gate.is_line_empty = call('ZCARD', WAITING) == 0
    end
    gate.due = math.min(gate.earliest_end(), NOW + KEPT)
end

-- Somebody to whom Python's scripts granted all it waits for becomes a holder like any other of ours.
function gate.adopt(id, record)
    if record.slot == NOT_YET then
        record.waited = NOW - record.since
        gate.note_time('wait', record.waited)
        gate.equip(id, record)
        gate.alert()
    end
end

-- When a sweep will find something to do, as text; empty if never.
function gate.next_deadline()
    local earliest = gate.earliest_end()
    return earliest < math.huge and string.format('%.6f', earliest) or ''
end

-- 1 if clients hold slots whose releases tell nobody: then MAIN has to be watched.
function gate.has_foreign_holders()
    return gate.held > gate.ours and 1 or 0
end

-- Opens the name on behalf of a handle. `asked` slots, 0 if it does not say; `opened` if it did this before, and then a
-- different number of slots means only that somebody resized it. Returns what is wrong, or nothing.
function gate.enter(asked, opened, epoch, max_waiting)
    local is_idle = gate.held == 0 and gate.is_line_empty
    if gate.limit == 0 then
        local theirs = not is_idle and tonumber(call('GET', MAX) or nil)
        if theirs and asked > 0 and theirs ~= asked and not opened then
            return { 'mismatch', theirs }
        end
        local limit = asked > 0 and asked or theirs
        if not limit then
            return { 'unset' }
        end
        gate.limit = limit
        gate.epoch = math.max(epoch, 0)
    elseif opened and epoch < gate.epoch then
        return { 'closed' }
    elseif gate.closed == 1 then
        if opened then
            return { 'closed' }
        elseif gate.held > 0 then
            return { 'closing', gate.held }
        end
        gate.closed = 0
        gate.epoch = gate.epoch + 1
        gate.limit = asked > 0 and asked or gate.limit
        gate.keep_until = 0
    elseif opened then
        gate.epoch = math.max(gate.epoch, epoch)
    elseif asked > 0 and asked ~= gate.limit then
        if not is_idle then
            return { 'mismatch', gate.limit }
        end
        gate.limit = asked
        gate.keep_until = 0
    elseif asked > 0 and gate.has_foreign_holders() == 1 then
        -- What ours agreed on, theirs do not know.
        local theirs = tonumber(call('GET', MAX) or nil)
        if theirs and theirs ~= asked then
            return { 'mismatch', theirs }
        end
    end
    if not opened and max_waiting >= 0 then
        gate.max_waiting = max_waiting + 1
    end
end
