-- Releases what an id has, a slot or a place in line, and serves the line. One round trip.
-- ARGV: namespace, id,
--       how: 'released', 'cancelled' or 'timed_out' (not wanted any more), or 'evicted' (by another client: a holder
--       with a grace is asked to leave, and keeps its slot until the grace ends; if it was asked before, it loses the
--       slot now), 1 if another process holds it and needs a message, 1 if this call may be a repetition
-- Returns {'ended' | 'left' | 'gone', how it ended, held, slots, waiting}; the numbers are exact only after
-- 'timed_out'.

-- The fast paths: the holder of one slot releases it, and either the line is empty, or the first waiter wants one
-- slot and all holders are our clients.
local id, how = ARGV[2], ARGV[3]
local known = how == 'released' and ARGV[4] == '0' and #info >= BITS and call('HGET', RECORDS, id)
--- short record patterns ---
local ttl, since, slot, waited = string.match(known or '', HOLDER)
if ttl and call('ZSCORE', MAIN, id) then
    --- unpack short INFO ---
    local bits = string.sub(info, BITS)
    local head = call('ZRANGE', WAITING, 0, 0)[1]
    -- If a script of Python's cut the expiry of MAIN, it may have cut others, too: gate.repair repairs all of them.
    local is_cut = keep_until > NOW and call('PTTL', MAIN) < (keep_until - NOW) * 1000
    local next_ttl, next_heartbeat, next_since, next_rest -- next_rest is grace and who
    if head and closed == 0 and ours >= slots and call('ZCARD', MAIN) + hidden == slots
        and tonumber(call('ZSCORE', BEATS, head) or 0) > NOW then
        next_ttl, next_heartbeat, next_since, next_rest = string.match(call('HGET', RECORDS, head) or '', WAITER)
    end
    if not is_cut and NOW >= unwanted + LATE and (not head or next_ttl == '0') then
        local nanos = math.max(math.floor((NOW - since) * 1000000000), 0)
        local namespace = NAMESPACE .. ':acquisition_notification:'
        bits = vacate(bits, tonumber(slot))
        if head then
            -- Grants to the first in line: see gate.grant_to_waiter.
            local wait = NOW - next_since
            local wait_nanos = math.max(math.floor(wait * 1000000000), 0)
            local lease = math.min(tonumber(next_heartbeat), GRACE)
            fence = math.max(fence + 1, SECONDS * 1000000 + MICROS)
            slot, bits = occupy(bits)
            local token = string.format('%.0f', fence)
            -- First the writes that need no memory: then a server that is out of memory accepts the others.
            call('ZREM', WAITING, head)
            call('ZREM', BEATS, head)
            call('ZADD', MAIN, NOW + lease, head)
            call('ZADD', OWN, NOW + lease, head)
            --- local record: weight='1' ttl='0' heartbeat=next_heartbeat since=NOW_TEXT slot token waited=wait grace..who=next_rest ---
            call('HSET', RECORDS, head, record)
            redis.pcall('PUBLISH', NAMESPACE .. ':semafor:' .. string.sub(head, 9, 20), 'granted ' .. head .. ' ' .. slot
                .. ' ' .. token .. ' ' .. wait .. ' ' .. NOW_TEXT .. ' ' .. string.format('%.6f', NOW + lease))
            call('RPUSH', namespace .. head, '1')
            call('PEXPIRE', namespace .. head, (GRACE + SPARE) * 1000)
            count_time('wait', wait_nanos)
            wait_total, wait_max = wait_total + wait_nanos, math.max(wait_max, wait_nanos)
            due, granted, ours = math.min(due, NOW + lease), granted + 1, ours + 1
        end
        call('ZREM', MAIN, id)
        call('ZREM', OWN, id)
        call('HDEL', RECORDS, id)
        if ttl ~= '0' then
            call('ZREM', TTL, id)
        end
        if waited ~= '0' then
            call('DEL', namespace .. id)
        end
        count_time('hold', nanos)
        ours, released = math.max(ours - 1, 0), released + 1
        hold_total, hold_max = hold_total + nanos, math.max(hold_max, nanos)
        --- pack short INFO ---
        call('SET', INFO, packed .. string.sub(info, REST, BITS - 1) .. bits, 'KEEPTTL')
        return { 'ended', 0, 0, slots, 0 }
    end
end

--- gate ---

if call('HEXISTS', RECORDS, id) == 1 then
    call('ZREM', MAIN, '') -- so that a server out of memory accepts the other writes: see ping.lua
end
gate.repair()
if how == 'evicted' then
    gate.sweep() -- a lease that has ended can't be evicted any more
end
local outcome, ending = gate.end_id(id, how, ARGV[4] == '1', ARGV[5] == '1')
gate.save()
return { outcome, ending, gate.held, gate.slots, how == 'timed_out' and gate.waiting() or 0 }
