-- All functions of the gate. See prelude.lua.

local STEP = 60 -- seconds; expiries are extended in steps of this
local REMEMBERED = 1024 -- endings
local NOT_YET = -1 -- the slot number of a waiter
local UNKNOWN = -2 -- the slot number of a holder whose record was lost
local LEAVING = -1 -- the grace of a holder that was evicted and keeps its slot until its lease ends
--- visible ---
local AT_ONCE = 1000 -- entries that one sweep ends at most
--- endings ---
--- record pattern ---

local gate
do
    local text = #info < BITS and info .. string.rep('\0', BITS - 1 - #info) or info
    --- unpack long INFO ---
    gate = {
        --- fields of INFO ---
        bits = string.sub(info, BITS),
        held = call('ZCARD', MAIN) + hidden,
        is_line_empty = call('ZCARD', WAITING) == 0,
        -- Reserves room for the functions below: a table that grows is copied again and again.
        save = 0, check_types = 0, extend = 0, keep_all = 0, keep = 0, keep_new = 0, keep_if_new = 0, id_of = 0,
        member_of = 0, put = 0, remove = 0, parts_of = 0, members_of = 0, has_all = 0, has_slots = 0, record_of = 0,
        write_record = 0, lease_of = 0, note_time = 0, publish = 0, notification_of = 0, remember = 0, ending_of = 0,
        remembered = 0, ids_in_line = 0, waiting = 0, occupy = 0, rebuild = 0, replace_record = 0, complete_record = 0,
        turn_away = 0, restore = 0, reconcile = 0, extend_hold = 0, complete_grant = 0, grant_at_once = 0, end_grant = 0,
        leave_line = 0, grant_to_waiter = 0, serve = 0, sweep_leases = 0, sweep_dead = 0, earliest_end = 0, sweep = 0,
        make_holder = 0, next_deadline = 0, has_python_holders = 0, open = 0, drop_notifications = 0,
        ask_head_to_watch = 0, end_removed = 0, ask_to_leave = 0, is_leaving = 0, sweep_own = 0, return_to_line = 0,
        end_id = 0, python_clients = 0, has_python_clients = 0, track_own = 0, repair = 0, is_expiry_cut = 0,
        set_lease = 0, touch = 0, hold_until = 0, confirm = 0, end_tracking = 0, recorded_numbers = 0, numbers = 0,
    }
end

-- Fails if a key has the wrong type, before anything is written.
function gate.check_types()
    call('ZCARD', TTL)
    call('ZCARD', BEATS)
    call('ZCARD', ENDINGS)
    call('ZCARD', OWN)
    call('HLEN', RECORDS)
    call('HLEN', TIMES)
    call('GET', MAX)
end

-- Called at the end of every script that may have changed something.
function gate.save()
    local g = gate
    if g.slots == 0 and g.closed == 0 then
        return -- the name was never opened, or the server has forgotten it
    end
    --- pack long INFO ---
    call('SET', INFO, packed .. g.bits, 'KEEPTTL')
    if info == '' then
        gate.extend(INFO, KEPT)
    end
end

-- Keys live as long as their content. An expiry is only ever extended: another caller may need the key for longer. A
-- key without an expiry was created by us just now.
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

-- Keeps the keys for at least that many seconds. Usually their expiry is late enough already.
function gate.keep(seconds)
    if gate.keep_until < NOW + seconds then
        gate.keep_until = NOW + seconds + STEP
        call('SET', MAX, gate.slots, 'KEEPTTL')
        -- Never empty: an empty hash would be deleted, and created again without an expiry.
        call('HSET', RECORDS, '', '')
        gate.save()
        gate.keep_all(seconds + STEP)
    end
end

-- Sets the expiry of a key that was empty: it was created just now and has none.
function gate.keep_new(key, seconds)
    call('PEXPIRE', key, math.ceil((math.max(seconds, gate.keep_until - NOW) + SPARE) * 1000))
end

-- The same for a key that may have been empty.
function gate.keep_if_new(key, seconds)
    if call('PTTL', key) == -1 then
        gate.keep_new(key, seconds)
    end
end

function gate.id_of(member)
    return string.match(member, '^[^#]+') or member
end

function gate.member_of(id, part)
    return part == 0 and id or string.format('%s#%05d', id, part)
end

-- How many members a weight has in the shared sets.
function gate.parts_of(weight)
    return math.min(weight, VISIBLE)
end

function gate.members_of(id, weight)
    local members = { id }
    for part = 1, gate.parts_of(weight) - 1 do
        members[part + 1] = gate.member_of(id, part)
    end
    return members
end

-- Returns how many members are new.
function gate.put(key, id, weight, score)
    if weight == 1 then
        return call('ZADD', key, score, id)
    end
    local scored = {}
    for _, member in ipairs(gate.members_of(id, weight)) do
        scored[#scored + 1] = score
        scored[#scored + 1] = member
    end
    return call('ZADD', key, unpack(scored))
end

-- Moves the members that exist, and adds none.
function gate.touch(key, id, weight, score)
    for part = 0, gate.parts_of(weight) - 1 do
        call('ZADD', key, 'XX', score, gate.member_of(id, part))
    end
end

function gate.remove(key, id, weight)
    if weight == 1 then
        return call('ZREM', key, id)
    end
    return call('ZREM', key, unpack(gate.members_of(id, weight)))
end

function gate.has_all(key, id, weight)
    for part = 0, gate.parts_of(weight) - 1 do
        if not call('ZSCORE', key, gate.member_of(id, part)) then
            return false
        end
    end
    return true
end

-- Holds the slots of one of our holders until `dead_at`, for Python's scripts and for ours.
function gate.hold_until(id, record, dead_at)
    local ends = record.ttl > 0 and tonumber(call('ZSCORE', TTL, id) or math.huge) or math.huge
    gate.held = gate.held + gate.put(MAIN, id, record.weight, dead_at)
    gate.track_own(id, record, math.min(dead_at, ends))
end

function gate.track_own(id, record, ends)
    if call('ZADD', OWN, ends, id) == 1 and call('ZCARD', OWN) == 1 then
        gate.keep_new(OWN, math.max(record.heartbeat, record.ttl))
    end
end

-- Sets the end of a lease. TTL lives as long as the other keys, so a shorter expiry shows that Python's scripts were
-- here.
function gate.set_lease(id, seconds)
    call('ZADD', TTL, NOW + seconds, id)
    gate.keep_if_new(TTL, seconds)
    gate.extend(TTL, seconds + SPARE)
end

-- True if the holder has all its slots. Slots that were removed from MAIN too early, or lost with it, are put back if
-- they are still free.
function gate.has_slots(id, record)
    if gate.has_all(MAIN, id, record.weight) then
        return true
    end
    return record.slot ~= NOT_YET and gate.restore(id, record, tonumber(call('ZSCORE', OWN, id) or 0))
end

function gate.restore(id, record, ends)
    local missing = 0
    for _, member in ipairs(gate.members_of(id, record.weight)) do
        missing = missing + (call('ZSCORE', MAIN, member) and 0 or 1)
    end
    if ends <= NOW or gate.slots - gate.held < missing then
        return false
    end
    local is_new = call('EXISTS', MAIN) == 0
    gate.held = gate.held + gate.put(MAIN, id, record.weight, ends)
    if record.ttl > 0 and not call('ZSCORE', TTL, id) then
        -- The earliest end possible: after a renewal, `since + ttl` is too early.
        call('ZADD', TTL, math.max(record.since + record.ttl, ends), id)
        gate.keep_new(TTL, ends - NOW)
    end
    if is_new then
        gate.keep_new(MAIN, ends - NOW)
    end
    return true
end

-- An id without a record belongs to another library: it has a weight of one, and nothing else is known.
function gate.record_of(id)
    local request, weight, ttl, heartbeat, since, slot, token, waited, grace, who =
        string.match(call('HGET', RECORDS, id) or '', RECORD)
    if not request then
        return { weight = 1, ttl = 0, heartbeat = 0, since = NOW, slot = NOT_YET, token = 0, waited = 0, grace = 0 }
    end
    return {
        is_ours = true,
        request = request,
        weight = tonumber(weight),
        ttl = tonumber(ttl),
        heartbeat = tonumber(heartbeat),
        since = tonumber(since),
        slot = tonumber(slot),
        token = tonumber(token),
        waited = tonumber(waited),
        grace = tonumber(grace) or 0,
        who = who,
    }
end

function gate.write_record(id, known)
    local since = known.since == NOW and NOW_TEXT or string.format('%.6f', known.since)
    local token = string.format('%.0f', known.token)
    --- local record: weight..heartbeat=known.request since slot=known.slot token waited=known.waited grace=known.grace who=known.who ---
    call('HSET', RECORDS, id, record)
end

-- How long a holder keeps its slots without a heartbeat.
function gate.lease_of(record)
    local ttl, heartbeat = record.ttl, record.heartbeat
    --- lease ---
    return lease
end

function gate.note_time(kind, seconds)
    local nanos = math.max(math.floor(seconds * 1000000000), 0)
    count_time(kind, nanos)
    local total, max = kind .. '_total', kind .. '_max'
    gate[total] = gate[total] + nanos
    gate[max] = math.max(gate[max], nanos)
end

-- Our ids contain the id of their process, which listens on this channel. Without permission to publish, clients
-- learn the same from their heartbeats.
function gate.publish(id, ...)
    redis.pcall('PUBLISH', NAMESPACE .. ':semafor:' .. string.sub(id, 9, 20), table.concat({ ... }, ' '))
end

function gate.notification_of(id)
    return NAMESPACE .. ':acquisition_notification:' .. id
end

-- Python's scripts push to a list of each part of a weight.
function gate.drop_notifications(id, weight)
    for part = 0, gate.parts_of(weight) - 1 do
        call('DEL', gate.notification_of(gate.member_of(id, part)))
    end
end

-- The client of a waiter has the server track the lists of the waiter's first and last part. The server stops
-- tracking a list only when it changes: not when DEL finds nothing, and not when the client is gone. So this changes
-- the list.
-- A list that gets an element needs no more: with a weight, a grant leaves the list of the last part to this.
function gate.end_tracking(id, weight, is_granted)
    local last = gate.parts_of(weight) - 1
    for part = is_granted and math.max(last, 1) or 0, last, math.max(last, 1) do
        local list = gate.notification_of(gate.member_of(id, part))
        call('RPUSH', list, '')
        call('DEL', list)
    end
end

function gate.remember(id, how)
    call('ZADD', ENDINGS, math.floor(NOW) * 8 + how, id)
    if call('ZREMRANGEBYRANK', ENDINGS, 0, -REMEMBERED - 1) > 0 then
        gate.forgot = 1
    end
    call('PEXPIRE', ENDINGS, KEPT * 1000)
end

-- How an id ended that holds nothing: RELEASED if it ended itself or never existed; FORGOTTEN if that is not known
-- any more.
function gate.ending_of(id)
    local ending = gate.remembered(id)
    if ending == REPEATED then
        return RELEASED
    end
    return ending or gate.forgot == 1 and FORGOTTEN or RELEASED
end

-- What ENDINGS has about an id, or nil.
function gate.remembered(id)
    local score = call('ZSCORE', ENDINGS, id)
    return score and tonumber(score) % 8
end

-- The ids in line. A weight has several members there, side by side, and is listed once. Python's scripts may have
-- taken its first members.
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

-- The number of waiters, without reading each. Only the first may have been granted a part of its weight, by Python's
-- scripts.
function gate.waiting()
    local members = call('ZCARD', WAITING)
    if gate.line_extra == 0 or members == 0 then
        return members
    end
    local id = gate.id_of(call('ZRANGE', WAITING, 0, 0)[1])
    local record, served = gate.record_of(id), 0
    for part = 0, gate.parts_of(record.weight) - 1 do
        served = served + (call('ZSCORE', WAITING, gate.member_of(id, part)) and 0 or 1)
    end
    return math.max(members + served - gate.line_extra, 1)
end

-- Takes the lowest number that none of our holders has. If all numbers below `slots` are taken, some belong to ids
-- that are gone.
function gate.occupy()
    local slot, bits = occupy(gate.bits)
    if slot >= gate.slots then
        gate.rebuild(true)
        slot, bits = occupy(gate.bits)
    end
    gate.bits = bits
    return slot
end

-- Makes a new record for a holder of ours that lost its own. MAIN shows what it holds, but not its slot number.
-- `hidden` slots are held by weights that have no record.
function gate.replace_record(id, ends, hidden)
    local weight = 1
    while weight < VISIBLE and call('ZSCORE', MAIN, gate.member_of(id, weight)) do
        weight = weight + 1
    end
    if weight < VISIBLE and call('ZSCORE', WAITING, gate.member_of(id, weight)) then
        return -- a waiter that Python's scripts granted a part of its weight: it calls again, with a new record
    end
    local ttl = math.max(tonumber(call('ZSCORE', TTL, id) or NOW) - NOW, 0)
    local record = {
        request = (weight == VISIBLE and weight + hidden or weight) .. ' ' .. ttl .. ' ' .. math.max(ends - NOW, 0),
        since = NOW,
        slot = UNKNOWN,
        token = 0,
        waited = 0,
        grace = 0,
        who = '{}',
    }
    gate.write_record(id, record)
end

-- The slot numbers in all records, read once.
function gate.recorded_numbers()
    if gate.numbers == 0 then
        gate.numbers = {}
        for _, id in ipairs(call('HKEYS', RECORDS)) do
            gate.numbers[gate.record_of(id).slot] = true
        end
    end
    return gate.numbers
end

-- Fills a replaced record with what the holder itself knows. Its slot number is then taken.
function gate.complete_record(id, record, heartbeat, slot, token)
    record.heartbeat = math.max(record.heartbeat, heartbeat)
    record.request = record.weight .. ' ' .. record.ttl .. ' ' .. record.heartbeat
    record.token = token
    local taken = gate.recorded_numbers()
    if not taken[slot] then
        record.slot, taken[slot] = slot, true
        gate.bits = occupy_number(gate.bits, slot)
    end -- else another holder was given its number: the end of only one of them may free it
    gate.fence = math.max(gate.fence, token)
    gate.write_record(id, record)
end

-- Counts again what our clients hold and wait for, from the keys that only we write. It reads every record, so it
-- runs only after keys were lost or changed by others, never in normal operation. Slot numbers without a record stay
-- taken, because their holders may have lost only the record, unless no other number is left.
function gate.rebuild(is_slot_free)
    local hidden = gate.hidden
    for _, id in ipairs(hidden > 0 and call('HKEYS', RECORDS) or {}) do
        local record = gate.record_of(id)
        if record.slot ~= NOT_YET then
            hidden = hidden - record.weight + gate.parts_of(record.weight)
        end
    end
    gate.ours, gate.hidden, gate.held_extra, gate.line_extra = 0, 0, 0, 0
    local ends, known, slots, missing = {}, { [''] = true }, {}, {}
    local own = call('ZRANGE', OWN, 0, -1, 'WITHSCORES')
    for i = 1, #own, 2 do
        ends[own[i]] = tonumber(own[i + 1])
        if call('HEXISTS', RECORDS, own[i]) == 0 and call('ZSCORE', MAIN, own[i]) then
            gate.replace_record(own[i], ends[own[i]], hidden)
            hidden = 0
        end
    end
    for _, id in ipairs(call('HKEYS', RECORDS)) do
        local record = gate.record_of(id)
        local is_holder = record.slot ~= NOT_YET
        if id ~= '' and record.is_ours then
            known[id] = true
            if not ends[id] then
                ends[id] = tonumber(call('ZSCORE', is_holder and MAIN or BEATS, id) or NOW)
                call('ZADD', OWN, ends[id], id)
            end
            local extra = gate.parts_of(record.weight) - 1
            if is_holder then
                slots[record.slot] = true
                gate.ours = gate.ours + record.weight
                gate.hidden = gate.hidden + record.weight - extra - 1
                gate.held_extra = gate.held_extra + extra
                gate.fence = math.max(gate.fence, record.token)
                if not gate.has_all(MAIN, id, record.weight) then
                    missing[#missing + 1] = { id, record }
                end
            else
                gate.line_extra = gate.line_extra + extra
            end
        elseif id ~= '' then
            call('HDEL', RECORDS, id)
        end
    end
    local bytes, highest = {}, #gate.bits * 8
    for slot in pairs(slots) do
        highest = math.max(highest, slot + 1)
    end
    for byte = 0, math.ceil(highest / 8) - 1 do
        local known_bits, value = is_slot_free and 0 or string.byte(gate.bits, byte + 1) or 0, 0
        for bit = 0, 7 do
            local is_taken = slots[byte * 8 + bit] or math.floor(known_bits / 2 ^ bit) % 2 == 1
            value = value + (is_taken and 2 ^ bit or 0)
        end
        bytes[byte + 1] = string.char(value)
    end
    gate.bits = table.concat(bytes)
    gate.held = call('ZCARD', MAIN) + gate.hidden
    if gate.slots == 0 then
        gate.slots = tonumber(call('GET', MAX) or 0)
    end
    gate.due = 0

    -- Waiters without a record call again, with a new record: see ping.lua.
    for id in pairs(ends) do
        if not known[id] then
            call('ZREM', OWN, id)
        end
    end
    for _, lost in ipairs(missing) do
        local id, record = lost[1], lost[2]
        if ends[id] > NOW and not gate.restore(id, record, ends[id]) then
            gate.end_grant(id, record, 'expired', VANISHED)
        end
    end
    local latest = NOW
    for _, ends_at in pairs(ends) do
        latest = math.max(latest, ends_at)
    end
    call('HSET', RECORDS, '', '')
    if gate.slots > 0 then
        call('SET', MAX, gate.slots, 'KEEPTTL')
    end
    gate.keep_until = math.max(gate.keep_until, latest)
    gate.keep_all(gate.keep_until - NOW)
end

-- Called if our holders hold more than MAIN has. Either they expired, and Python's scripts removed them first; or
-- MAIN was lost.
function gate.reconcile()
    gate.sweep_own()
    if gate.held < gate.ours then
        gate.rebuild()
    end
end

-- Called at the start of every script that changes something. Repairs what was lost, or what Python's scripts
-- changed, so that all slots of our holders are counted before a slot is granted.
function gate.repair()
    local records, own = call('HLEN', RECORDS), call('ZCARD', OWN)
    if info == '' and (records > 1 or own > 0) or info ~= '' and records ~= own + 1 then
        gate.rebuild() -- one of the three was lost
    elseif gate.held < gate.ours then
        gate.reconcile()
    end
    if gate.keep_until > NOW and (gate.is_expiry_cut(MAIN) or gate.is_expiry_cut(TTL) or gate.is_expiry_cut(WAITING)
        or gate.is_expiry_cut(BEATS)) then
        gate.shared = NOW
        gate.keep_all(gate.keep_until - NOW)
    end
end

-- Python's scripts set expiries of the shared keys to their caller's needs, each script on some of the keys.
function gate.is_expiry_cut(key)
    local left = call('PTTL', key)
    return left >= 0 and left < (gate.keep_until - NOW) * 1000
end

-- Sets what only our ids have: token, lease, statistics. Their slots are in MAIN and they have their slot number
-- already.
function gate.complete_grant(id, record)
    record.token = math.max(gate.fence + 1, SECONDS * 1000000 + MICROS)
    record.since = NOW
    if record.ttl > 0 then
        gate.set_lease(id, record.ttl)
    end
    gate.write_record(id, record)
    gate.fence = record.token
    local parts = gate.parts_of(record.weight)
    gate.ours = gate.ours + record.weight
    gate.hidden = gate.hidden + record.weight - parts
    gate.held = gate.held + record.weight - parts
    gate.held_extra = gate.held_extra + parts - 1
    gate.granted = gate.granted + 1
    gate.due = math.min(gate.due, NOW + gate.lease_of(record))
end

-- An evicted holder keeps its slot until its grace or its lease ends, whichever is first. Returns false if it has no
-- grace, or was evicted before.
function gate.ask_to_leave(id, record)
    if record.grace <= 0 then
        return false
    end
    local ends = tonumber(call('ZSCORE', TTL, id) or math.huge)
    local grace = math.min(record.grace, ends - NOW)
    record.ttl = grace
    record.request = record.weight .. ' ' .. grace .. ' ' .. record.heartbeat
    record.grace = LEAVING
    gate.set_lease(id, grace)
    -- It sends no more heartbeats.
    gate.hold_until(id, record, NOW + grace)
    gate.write_record(id, record)
    gate.due = math.min(gate.due, NOW + grace)
    -- So no heartbeat extends the keys either.
    gate.keep(grace)
    gate.keep_all(grace)
    return true
end

function gate.is_leaving(record)
    return record.grace == LEAVING
end

-- A heartbeat of a holder. The record says how long it counts: what the client knew when it sent the request may be
-- out of date. It does not shorten what another process has vouched for (renew.lua). The grace of an evicted holder
-- is fixed.
function gate.extend_hold(id, record)
    if not gate.is_leaving(record) then
        -- A score far in the future is from a clock that has been set back since.
        local known = math.min(tonumber(call('ZSCORE', MAIN, id) or 0), NOW + KEPT)
        gate.hold_until(id, record, math.max(NOW + gate.lease_of(record), known))
    end
end

-- Tells a client again what it holds. `floor` is the largest fencing token that its process has seen: if the server
-- has forgotten it, the holder gets a larger token. Returns the end of the lease, '' without a lease, or nil if the
-- client is back in line.
function gate.confirm(id, record, floor)
    if not gate.make_holder(id, record) then
        return nil
    end
    if record.slot == UNKNOWN then
        record.slot = gate.occupy()
        gate.write_record(id, record)
    end
    if record.token <= floor then
        gate.fence = math.max(gate.fence, floor) + 1
        record.token = gate.fence
        gate.write_record(id, record)
    end
    gate.extend_hold(id, record)
    return call('ZSCORE', TTL, id) or ''
end

-- Grants to the client that runs this script, which gets the grant as its reply.
function gate.grant_at_once(id, record)
    local is_new = call('EXISTS', MAIN) == 0
    record.slot = gate.occupy()
    gate.hold_until(id, record, NOW + gate.lease_of(record))
    if is_new then
        gate.keep_new(MAIN, math.max(record.heartbeat, record.ttl))
    end
    gate.complete_grant(id, record)
    gate.keep(math.max(record.heartbeat, record.ttl))
end

-- Ends a grant. `how` is one of the totals; `loss` is the code of the loss if its holder did not end it.
function gate.end_grant(id, record, how, loss)
    if how == 'expired' and gate.is_leaving(record) then
        how, loss = 'evicted', loss and EVICTED -- its grace is over
    end
    gate.held = gate.held - gate.remove(MAIN, id, record.weight)
    if record.ttl > 0 or not record.is_ours then
        call('ZREM', TTL, id)
    end
    if record.waited > 0 or not record.is_ours then
        gate.drop_notifications(id, record.weight)
    end
    if record.is_ours then
        local parts = gate.parts_of(record.weight)
        call('HDEL', RECORDS, id)
        call('ZREM', OWN, id)
        if record.slot == NOT_YET then
            gate.line_extra = gate.line_extra - parts + 1
        else
            gate.bits = vacate(gate.bits, record.slot)
            gate.ours = math.max(gate.ours - record.weight, 0)
            gate.hidden = gate.hidden - record.weight + parts
            gate.held = gate.held - record.weight + parts
            gate.held_extra = gate.held_extra - parts + 1
            gate[how] = gate[how] + 1
            gate.note_time('hold', NOW - record.since)
        end
    end
    if loss then
        gate.remember(id, loss)
        gate.publish(id, 'lost', id, loss)
    end
end

-- Python's releases do not wake our waiters, so the first in line watches MAIN. It gets a message whenever the first in
-- line may have changed.
function gate.ask_head_to_watch()
    local head = gate.has_python_holders() == 1 and call('ZRANGE', WAITING, 0, 0)[1]
    if head and call('HEXISTS', RECORDS, gate.id_of(head)) == 1 then
        gate.publish(head, 'watch', gate.id_of(head))
    end
end

-- Removes a waiter from the line without a grant, together with the part of its weight that Python's scripts granted.
function gate.leave_line(id, record)
    gate.remove(WAITING, id, record.weight)
    gate.remove(BEATS, id, record.weight)
    gate.held = gate.held - gate.remove(MAIN, id, record.weight)
    if record.is_ours then
        gate.line_extra = gate.line_extra - gate.parts_of(record.weight) + 1
        call('HDEL', RECORDS, id)
        call('ZREM', OWN, id)
    end
    gate.drop_notifications(id, record.weight)
    gate.end_tracking(id, record.weight)
    gate.ask_head_to_watch()
end

-- Refuses a waiter because its name was closed.
function gate.turn_away(id, record)
    gate.leave_line(id, record)
    gate.remember(id, CLOSED)
    gate.publish(id, 'closed', id)
    gate.refused = gate.refused + 1
end

-- Ends an id whose slots or place in line Python's scripts removed without a message. Returns how a holder ended.
function gate.end_removed(id, record)
    if record.slot ~= NOT_YET then
        gate.end_grant(id, record, 'expired')
        return record.ttl > 0 and record.since + record.ttl <= NOW and EXPIRED or VANISHED
    elseif record.is_ours then
        gate.leave_line(id, record)
    end
end

-- Grants to a waiter. The slot is reserved for a grace only, because the waiter may be dead. Its next heartbeat
-- extends that.
function gate.grant_to_waiter(id, record)
    local lease = math.min(record.is_ours and gate.lease_of(record) or GRACE, GRACE)
    local is_new = call('EXISTS', MAIN) == 0
    record.slot = record.is_ours and gate.occupy() or NOT_YET
    gate.remove(WAITING, id, record.weight)
    gate.remove(BEATS, id, record.weight)
    gate.held = gate.held + gate.put(MAIN, id, record.weight, NOW + lease)
    if is_new then
        gate.keep_new(MAIN, math.max(record.heartbeat, record.ttl, GRACE))
    end
    if record.is_ours then
        record.waited = NOW - record.since
        gate.note_time('wait', record.waited)
        gate.line_extra = gate.line_extra - gate.parts_of(record.weight) + 1
        gate.complete_grant(id, record)
        gate.track_own(id, record, NOW + lease)
        gate.due = math.min(gate.due, NOW + lease)
        gate.publish(id, 'granted', id, record.slot, string.format('%.0f', record.token), record.waited, NOW_TEXT,
            string.format('%.6f', NOW + lease))
        gate.end_tracking(id, record.weight, true)
    end
    local notification = gate.notification_of(id)
    call('RPUSH', notification, '1')
    call('PEXPIRE', notification, (GRACE + SPARE) * 1000)
    gate.ask_head_to_watch()
end

-- Grants to the head of the line for as long as it fits. A dead head is passed over.
function gate.serve()
    while gate.slots > gate.held and gate.closed == 0 do
        local head = call('ZRANGE', WAITING, 0, 0)[1]
        if not head then
            gate.is_line_empty = true
            return
        end
        local id = gate.id_of(head)
        local record = gate.record_of(id)
        if not record.is_ours then
            id = head -- also if it looks like a part of a weight: without a record, its id is unknown
        end
        if record.slot ~= NOT_YET then
            -- A part of a weight whose id holds its slots already. Every round must remove its head, or the loop
            -- would never end.
            call('ZREM', WAITING, head)
            call('ZREM', BEATS, head)
        elseif tonumber(call('ZSCORE', BEATS, head) or 0) <= NOW then
            gate.leave_line(id, record)
            call('ZREM', WAITING, head)
            gate.cancelled = gate.cancelled + 1
        else
            local parts = gate.parts_of(record.weight)
            local needs = record.weight - parts
            -- Python's scripts may have granted a part of it. That part may be lost, so it counts only if it is there.
            for part = 0, parts - 1 do
                needs = needs + (call('ZSCORE', MAIN, gate.member_of(id, part)) and 0 or 1)
            end
            if gate.slots - gate.held < needs then
                return
            end
            gate.grant_to_waiter(id, record)
            call('ZREM', WAITING, head) -- already removed, unless the record has a smaller weight than the line
        end
    end
end

-- Ends leases in the order of their ends. Leases that end at the same time end together, before the line is served.
function gate.sweep_leases()
    local overdue = call('ZRANGEBYSCORE', TTL, '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, AT_ONCE)
    for i = 1, #overdue, 2 do
        local id = overdue[i]
        gate.end_grant(id, gate.record_of(id), 'expired', EXPIRED)
        call('ZREM', TTL, id)
        if overdue[i + 1] ~= overdue[i + 3] then
            gate.serve()
        end
    end
end

-- Ends holders and waiters whose heartbeats stopped.
function gate.sweep_dead()
    for _, member in ipairs(call('ZRANGEBYSCORE', MAIN, '-inf', NOW, 'LIMIT', 0, AT_ONCE)) do
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
            call('DEL', BEATS) -- its members do not wait any more
        end
        return
    end
    for _, member in ipairs(call('ZRANGEBYSCORE', BEATS, '-inf', NOW, 'LIMIT', 0, AT_ONCE)) do
        if call('ZREM', BEATS, member) == 1 then
            local id = gate.id_of(member)
            gate.leave_line(id, gate.record_of(id))
            call('ZREM', WAITING, member)
            gate.cancelled = gate.cancelled + 1
        end
    end
end

-- Ends our ids that are due and whose members Python's scripts removed, or that were lost with a shared key.
function gate.sweep_own()
    for _, id in ipairs(call('ZRANGEBYSCORE', OWN, '-inf', NOW, 'LIMIT', 0, AT_ONCE)) do
        local record = gate.record_of(id)
        if record.slot == NOT_YET then
            gate.leave_line(id, record)
            gate.cancelled = gate.cancelled + 1
        else
            local is_over = record.ttl > 0 and record.since + record.ttl <= NOW
            gate.end_grant(id, record, 'expired', is_over and EXPIRED or VANISHED)
        end
        call('ZREM', OWN, id)
    end
end

function gate.earliest_end()
    local earliest = math.huge
    for _, key in ipairs({ TTL, MAIN, BEATS, OWN }) do
        local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
        if first then
            earliest = math.min(earliest, tonumber(first))
        end
    end
    return earliest
end

-- Ends everything that is due, and serves the line.
function gate.sweep()
    gate.sweep_leases()
    gate.sweep_dead()
    gate.sweep_own()
    if gate.has_python_clients() then
        gate.shared = NOW
    end
    if not gate.is_line_empty then
        gate.serve()
        gate.is_line_empty = call('ZCARD', WAITING) == 0
    end
    gate.due = math.min(gate.earliest_end(), NOW + KEPT)
end

-- Makes a waiter of ours a holder, once Python's scripts have granted all the parts they see. False if there is no
-- room for the part that they do not see: then the waiter is back in line, at its old place.
function gate.make_holder(id, record)
    if record.slot ~= NOT_YET then
        return true
    end
    if gate.slots - gate.held < record.weight - gate.parts_of(record.weight) then
        gate.return_to_line(id, record)
        return false
    end
    record.slot = gate.occupy()
    record.waited = NOW - record.since
    gate.note_time('wait', record.waited)
    gate.line_extra = gate.line_extra - gate.parts_of(record.weight) + 1
    gate.complete_grant(id, record)
    if record.ttl > 0 then
        gate.track_own(id, record, math.min(tonumber(call('ZSCORE', OWN, id) or math.huge), NOW + record.ttl))
    end
    gate.ask_head_to_watch()
    return true
end

function gate.return_to_line(id, record)
    gate.held = gate.held - gate.remove(MAIN, id, record.weight)
    gate.put(WAITING, id, record.weight, record.since)
    gate.put(BEATS, id, record.weight, NOW + record.heartbeat)
    gate.track_own(id, record, NOW + record.heartbeat)
    gate.drop_notifications(id, record.weight)
    gate.keep_if_new(WAITING, record.heartbeat)
    gate.keep_if_new(BEATS, record.heartbeat)
    gate.is_line_empty = false
end

-- The time at which a sweep will have something to do, as text; empty if never.
function gate.next_deadline()
    local earliest = gate.earliest_end()
    return earliest < math.huge and string.format('%.6f', earliest) or ''
end

-- 1 if clients of the Python library hold slots: their releases do not wake our waiters, so MAIN has to be watched.
function gate.has_python_holders()
    return gate.held > gate.ours and 1 or 0
end

-- True if clients of the Python library hold slots or wait.
function gate.has_python_clients()
    local holders = gate.ours - gate.held_extra - gate.hidden
    return gate.held > gate.ours or gate.waiting() > call('ZCARD', OWN) - holders
end

-- 1 if clients of the Python library hold slots, 2 if they do not but were seen within the last hour, else 0. While
-- they are around, the expiry of MAIN may be cut short at any time.
function gate.python_clients()
    return gate.held > gate.ours and 1 or NOW < gate.shared + KEPT and 2 or 0
end

-- Releases what an id has, a slot or a place in line, and serves the line. Returns the outcome, and how the id ended
-- if it had nothing. See release.lua. If another attempt of its request may still arrive, that is refused.
function gate.end_id(id, how, by_another, again, may_arrive)
    local record = gate.record_of(id)
    local is_unwanted = how == 'cancelled' or how == 'timed_out'
    local outcome, ending = 'gone', RELEASED
    if gate.has_slots(id, record) then
        outcome = 'ended'
        if how == 'evicted' and (gate.ask_to_leave(id, record) or again and gate.is_leaving(record)) then
            gate.publish(id, 'lost', id, EVICTED)
        elseif how == 'evicted' then
            gate.end_grant(id, record, 'evicted', EVICTED)
        else
            gate.end_grant(id, record, is_unwanted and 'handed_on' or 'released')
            if by_another then
                gate.publish(id, 'lost', id, RELEASED)
            end
        end
    elseif call('ZSCORE', WAITING, gate.member_of(id, gate.parts_of(record.weight) - 1)) then
        outcome = 'left'
        gate.leave_line(id, record)
        local total = is_unwanted and how or 'cancelled'
        gate[total] = gate[total] + 1
    else
        ending = gate.end_removed(id, record) or gate.ending_of(id)
        if is_unwanted then
            gate.remember(id, UNWANTED)
            gate.unwanted = NOW
        end
    end
    -- If another process ended it, its own process may not know of the grant yet, and then asks again.
    local is_repeated = outcome ~= 'gone' and not by_another and NOW < gate.unwanted + LATE
        and gate.remembered(id) == REPEATED
    if (may_arrive or is_repeated) and call('HEXISTS', RECORDS, id) == 0 then
        gate.remember(id, UNWANTED)
        if may_arrive then
            gate.unwanted = NOW -- after a repetition it is late enough already
        end
    end
    gate.serve()
    return outcome, ending
end

-- Opens the name on behalf of a handle. `asked` is its number of slots, 0 if it gives none. `opened` means that it
-- opened the name before: then a different number only means that the semaphore was resized. Returns the refusal, or
-- nil.
function gate.open(asked, opened, epoch, max_waiting)
    local is_idle = gate.held == 0 and gate.is_line_empty
    if gate.slots == 0 and gate.closed == 0 then
        local python_slots = not is_idle and tonumber(call('GET', MAX) or nil)
        if python_slots and asked > 0 and python_slots ~= asked and not opened then
            return { 'mismatch', python_slots }
        end
        local slots = asked > 0 and asked or python_slots
        if not slots then
            return { 'unset' }
        end
        gate.slots = slots
        gate.epoch = math.max(epoch, 0)
    elseif opened and epoch < gate.epoch then
        return { 'closed' }
    elseif gate.closed == 1 then
        if opened then
            return { 'closed' }
        elseif gate.held > 0 then
            return { 'closing', gate.held }
        elseif asked == 0 and gate.slots == 0 then
            return { 'unset' } -- it was closed before it was opened
        end
        gate.closed = 0
        gate.epoch = gate.epoch + 1
        gate.slots = asked > 0 and asked or gate.slots
        gate.keep_until = 0
    elseif opened then
        gate.epoch = math.max(gate.epoch, epoch)
    elseif asked > 0 and asked ~= gate.slots then
        if not is_idle then
            return { 'mismatch', gate.slots }
        end
        gate.slots = asked
        gate.keep_until = 0
    elseif asked > 0 and gate.has_python_holders() == 1 then
        -- Our clients agreed on this number, but Python's clients may use another.
        local python_slots = tonumber(call('GET', MAX) or nil)
        if python_slots and python_slots ~= asked then
            return { 'mismatch', python_slots }
        end
    end
    if not opened and max_waiting >= 0 then
        gate.max_waiting = max_waiting + 1
    end
end
