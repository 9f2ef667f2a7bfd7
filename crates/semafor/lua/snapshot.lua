-- The state of the name. Changes nothing: overdue holders count as ended, and the scripts that sweep remove them.
-- ARGV: namespace
-- Returns {now, slots as Python's scripts know them, {field, value, …}, {bucket, count, …}, held, holders, waiting,
--          first arrival}
local totals = {}
for field, value in pairs(gate) do
    if type(value) == 'number' then
        totals[#totals + 1] = field
        totals[#totals + 1] = string.format('%.0f', value)
    end
end

-- Overdue holders count as ended. There are few at any time, because other scripts sweep.
-- Slots of our holders count even if they were lost with MAIN, to which a script of Python's gave an expiry.
local lacks = math.max(gate.ours - gate.held, 0)
local held, holders = gate.held + lacks, call('ZCARD', MAIN) - gate.held_extra + lacks
local over = {}
for _, key in ipairs({ MAIN, TTL, OWN }) do
    for _, member in ipairs(call('ZRANGEBYSCORE', key, '-inf', NOW, 'LIMIT', 0, AT_ONCE)) do
        local id = gate.id_of(member)
        if not over[id] then
            over[id] = true
            local record, members = gate.record_of(id), 0
            for _, part in ipairs(gate.members_of(id, record.weight)) do
                members = members + (call('ZSCORE', MAIN, part) and 1 or 0)
            end
            local parts = gate.parts_of(record.weight)
            if members == 0 and lacks > 0 and record.slot ~= NOT_YET then
                held, holders, lacks = held - record.weight, holders - 1, lacks - record.weight
            elseif members > 0 then
                held = held - members - (record.slot ~= NOT_YET and record.weight - parts or 0)
                holders = holders - members + (record.slot ~= NOT_YET and parts - 1 or 0)
            end
        end
    end
end

-- Python's scripts may have granted the first waiter a part of its weight. A waiter with a part is not a holder yet.
local first = call('ZRANGE', WAITING, 0, 0)[1]
local partly_served = first and gate.id_of(first)
if partly_served and gate.line_extra > 0 and not over[partly_served] then
    for _, part in ipairs(gate.members_of(partly_served, gate.record_of(partly_served).weight)) do
        holders = holders - (call('ZSCORE', MAIN, part) and 1 or 0)
    end
end

local waiting = gate.waiting()
if gate.line_extra == 0 then
    waiting = waiting - call('ZCOUNT', BEATS, '-inf', NOW)
else
    local last
    for _, member in ipairs(call('ZRANGEBYSCORE', BEATS, '-inf', NOW, 'LIMIT', 0, AT_ONCE)) do
        local id = gate.id_of(member)
        waiting = waiting - (id ~= last and 1 or 0)
        last = id
    end
end
return {
    NOW_TEXT,
    tonumber(call('GET', MAX) or 0),
    totals,
    call('HGETALL', TIMES),
    held,
    holders,
    math.max(waiting, 0),
    call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')[2] or '',
}
