-- Gives back whatever an id has, a slot or a place in line, and serves those who wait. One trip.
-- ARGV: namespace, id, how: 'released', 'evicted' (by somebody else: one that was promised time to leave is told to, and
--       keeps its slot until then, unless it was told before), 'cancelled' or 'timed_out' (no longer wanted),
--       1 if the process that holds it is another one, and has to be told, 1 if this may have been asked before
-- Returns {'ended' | 'left' | 'gone', how it ended, held, slots, waiting}; the numbers are right if it timed out.

-- The short ways: the holder of one slot gives it back; and nobody waits, or somebody who wants one slot, too, and all are
-- clients of ours.
local id, how = ARGV[2], ARGV[3]
local known = how == 'released' and ARGV[4] == '0' and #info >= BITS and call('HGET', RECORDS, id)
local ttl, since, slot, waited = string.match(known or '', '^1 (%S+) %S+ (%S+) (%d+) %S+ (%S+)')
if ttl and call('ZSCORE', MAIN, id) then
    local limit, closed, epoch, fence, ours, keep_until, due, unwanted, granted, released, hold_total, hold_max, wait_total,
        wait_max = struct.unpack(SHORT, info)
    local bits = string.sub(info, BITS)
    local head = call('ZRANGE', WAITING, 0, 0)[1]
    local next_ttl, next_heartbeat, next_since, next_who
    if head and closed == 0 and ours >= limit and call('ZCARD', MAIN) == limit
        and tonumber(call('ZSCORE', BEATS, head) or 0) > NOW then
        next_ttl, next_heartbeat, next_since, next_who = string.match(call('HGET', RECORDS, head) or '',
            '^1 (%S+) (%S+) (%S+) %S+ %S+ %S+ (.*)$')
    end
    if not head or next_ttl == '0' then
        local nanos = math.max(math.floor((NOW - since) * 1000000000), 0)
        local namespace = NAMESPACE .. ':acquisition_notification:'
        bits = vacate(bits, tonumber(slot))
        if head then
            -- From the line: see gate.grant_to_waiter.
            local wait = NOW - next_since
            local wait_nanos = math.max(math.floor(wait * 1000000000), 0)
            local lease = math.min(tonumber(next_heartbeat), GRACE)
            fence = math.max(fence + 1, SECONDS * 1000000 + MICROS)
            slot, bits = occupy(bits)
            local token = string.format('%.0f', fence)
            -- First what needs no memory: a server that has none lets the rest through.
            call('ZREM', WAITING, head)
            call('ZREM', BEATS, head)
            call('ZADD', MAIN, NOW + lease, head)
            call('HSET', RECORDS, head, '1 0 ' .. next_heartbeat .. ' ' .. NOW_TEXT .. ' ' .. slot .. ' ' .. token .. ' '
                .. wait .. ' ' .. next_who)
            redis.pcall('PUBLISH', NAMESPACE .. ':semafor:' .. string.sub(head, 9, 20), 'granted ' .. head .. ' ' .. slot .. ' '
                .. token .. ' ' .. wait .. ' ' .. NOW_TEXT .. ' ' .. string.format('%.6f', NOW + lease))
            call('RPUSH', namespace .. head, '1')
            call('PEXPIRE', namespace .. head, (GRACE + SPARE) * 1000)
            count_time('wait', wait_nanos)
            wait_total, wait_max = wait_total + wait_nanos, math.max(wait_max, wait_nanos)
            due, granted, ours = math.min(due, NOW + lease), granted + 1, ours + 1
        end
        call('ZREM', MAIN, id)
        call('HDEL', RECORDS, id)
        if ttl ~= '0' then
            call('ZREM', TTL, id)
        end
        if waited ~= '0' then
            call('DEL', namespace .. id)
        end
        count_time('hold', nanos)
        call('SET', INFO, struct.pack(SHORT, limit, closed, epoch, fence, math.max(ours - 1, 0), keep_until, due, unwanted,
            granted, released + 1, hold_total + nanos, math.max(hold_max, nanos), wait_total, wait_max)
            .. string.sub(info, REST, BITS - 1) .. bits, 'KEEPTTL')
        return { 'ended', 0, 0, limit, 0 }
    end
end

--- gate ---

local record = gate.record_of(id)
local has_slots = gate.has_all(MAIN, id, record.weight)
local is_unwanted = how == 'cancelled' or how == 'timed_out'
local outcome, ending = 'gone', RELEASED
if has_slots then
    outcome = 'ended'
    if how == 'evicted' and (gate.ask_to_leave(id, record) or ARGV[5] == '1' and gate.is_leaving(record)) then
        gate.tell(id, 'lost', id, EVICTED)
    elseif how == 'evicted' then
        gate.end_grant(id, record, 'evicted', EVICTED)
    else
        gate.end_grant(id, record, is_unwanted and 'handed_on' or 'released')
        if ARGV[4] == '1' then
            gate.tell(id, 'lost', id, RELEASED)
        end
    end
elseif call('ZSCORE', WAITING, gate.member_of(id, record.weight - 1)) then
    outcome = 'left'
    gate.leave_line(id, record)
    local total = is_unwanted and how or 'cancelled'
    gate[total] = gate[total] + 1
else
    ending = gate.write_off(id, record) or gate.ending_of(id)
    if is_unwanted then
        gate.remember(id, UNWANTED)
        gate.unwanted = NOW
    end
end

gate.serve()
gate.save()
return { outcome, ending, gate.held, gate.limit, how == 'timed_out' and #gate.ids_in_line() or 0 }
