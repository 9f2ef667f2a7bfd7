-- Gives back whatever an id has, a slot or a place in line, and serves those who wait. One trip.
-- ARGV: namespace, id, how: 'released', 'evicted' (by somebody else), 'cancelled' or 'timed_out' (no longer wanted),
--       1 if the process that holds it is another one, and has to be told
-- Returns {'ended' | 'left' | 'gone', how it ended, held, slots, waiting}; the numbers are right if it timed out.

-- The short way: its holder gives it back, it was not waited for, and nobody waits now.
local known = ARGV[3] == 'released' and ARGV[4] == '0' and #info >= BITS and call('HGET', RECORDS, ARGV[2])
local ttl, since, slot = string.match(known or '', '^1 (%S+) %S+ (%S+) (%d+) %S+ 0 ')
if since and call('ZCARD', WAITING) == 0 and call('ZREM', MAIN, ARGV[2]) == 1 then
    local limit, closed, epoch, fence, ours, keep_until, due, unwanted, granted, released, hold_total, hold_max =
        struct.unpack(SHORT, info)
    local nanos = math.max(math.floor((NOW - since) * 1000000000), 0)
    call('HDEL', RECORDS, ARGV[2])
    if ttl ~= '0' then
        call('ZREM', TTL, ARGV[2])
    end
    count_time('hold', nanos)
    call('SET', INFO, struct.pack(SHORT, limit, closed, epoch, fence, math.max(ours - 1, 0), keep_until, due, unwanted, granted,
        released + 1, hold_total + nanos, math.max(hold_max, nanos)) .. string.sub(info, 97, BITS - 1)
        .. vacate(string.sub(info, BITS), tonumber(slot)), 'KEEPTTL')
    return { 'ended', 0, 0, limit, 0 }
end

--- gate ---

local id, how = ARGV[2], ARGV[3]
local record = gate.record_of(id)
local has_slots = gate.has_all(MAIN, id, record.weight)
local is_unwanted = how == 'cancelled' or how == 'timed_out'
local outcome, ending = 'gone', RELEASED
if has_slots then
    outcome = 'ended'
    if how == 'evicted' then
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
    ending = gate.ending_of(id)
    if is_unwanted then
        gate.remember(id, UNWANTED)
        gate.unwanted = NOW
    end
end

gate.serve()
gate.save()
return { outcome, ending, gate.held, gate.limit, how == 'timed_out' and gate.line_length() or 0 }
