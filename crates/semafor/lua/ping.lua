-- A heartbeat for everything that one process holds and waits for under a name.
-- ARGV: namespace, number of holders, largest fencing token that the process has seen,
--       then for each holder id, weight, heartbeat, slot, token; then for each waiter id, weight, heartbeat
-- Returns {now, next deadline, python clients (see gate.python_clients), state, state, …}. The state of a holder is the
-- end of its lease ('' without a lease, 1 if the end is not known here). The state of a waiter is 1 while it waits, or
-- {'granted', slot, token, waited}. Either may be {'gone', how it ended}, also for a holder that was asked to leave
-- and has not left yet.
local holders = tonumber(ARGV[2])
local answer = { NOW_TEXT, '', 0 }
local records = {}
local span = SPARE
local ids = holders + (#ARGV - 3 - holders * 5) / 3

-- Where the arguments of an id begin. Holders come first.
local function first_argument(place)
    return place <= holders and place * 5 - 1 or holders * 2 + place * 3 + 1
end

-- A server that is out of memory refuses a script whose first write may need memory. ZREM needs none, and once it has
-- run the server accepts the other writes. So lack of memory never makes a live client look dead.
call('ZREM', MAIN, '')
gate.fence = math.max(gate.fence, tonumber(ARGV[3]))
if call('HLEN', RECORDS) ~= call('ZCARD', OWN) + 1 then
    gate.repair()
end
gate.sweep_leases()
-- Heartbeats count before the dead are swept: a late client is alive, and its slot was not granted to another one yet.
for place = 1, ids do
    local i = first_argument(place)
    local id, weight, heartbeat = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    local record
    span = math.max(span, heartbeat)
    if place > holders then
        gate.touch(BEATS, id, weight, NOW + heartbeat)
    end
    if place <= holders or call('ZSCORE', MAIN, id) then
        record = gate.record_of(id)
        if record.slot == NOT_YET then
            -- Python's scripts have granted a part of its weight; or its record is lost.
            gate.touch(MAIN, id, weight, NOW + heartbeat)
        elseif gate.has_all(MAIN, id, weight) then
            if record.slot == UNKNOWN and place <= holders then
                gate.complete_record(id, record, heartbeat, tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]))
            end
            gate.extend_hold(id, record)
        end
        records[place] = record
    end
    if place > holders and (not record or record.slot == NOT_YET) then
        call('ZADD', OWN, 'XX', NOW + heartbeat, id)
    end
    answer[place + 3] = 1
end

local function state_of_holder(id, record)
    if gate.is_leaving(record) then
        return { 'gone', EVICTED }
    elseif record.slot == NOT_YET then
        return 1
    end
    return record.ttl == 0 and '' or call('ZSCORE', TTL, id) or 1
end

gate.repair()
gate.sweep()
for place = 1, ids do
    local i = first_argument(place)
    local id, weight = ARGV[i], tonumber(ARGV[i + 1])
    local is_in_line = place > holders and call('ZSCORE', WAITING, gate.member_of(id, gate.parts_of(weight) - 1))
    if place > holders and (gate.slots == 0 or call('HEXISTS', RECORDS, id) == 0) then
        -- Also if only its record is lost, or the number of slots: the waiter calls queue.lua again and brings both.
        answer[place + 3] = { 'gone', gate.ending_of(id) }
    elseif is_in_line and gate.closed == 1 then
        -- The client that closed the name died before it had turned away all waiters.
        gate.turn_away(id, gate.record_of(id))
        answer[place + 3] = { 'gone', CLOSED }
    elseif place <= holders and gate.has_all(MAIN, id, weight) then
        answer[place + 3] = state_of_holder(id, records[place])
    elseif not is_in_line then
        local record = gate.record_of(id)
        if not gate.has_slots(id, record) then
            answer[place + 3] = { 'gone', gate.end_removed(id, record) or gate.ending_of(id) }
        elseif place <= holders then
            answer[place + 3] = state_of_holder(id, record)
        elseif gate.make_holder(id, record) then
            answer[place + 3] = { 'granted', record.slot, record.token, tostring(record.waited) }
        end
    end
end

if gate.slots > 0 then
    gate.keep(span) -- so that a script that repairs a cut expiry knows how long the keys are needed
end
gate.keep_all(math.max(span, gate.keep_until - NOW))
answer[2] = gate.next_deadline()
answer[3] = gate.python_clients()
gate.save()
return answer
