-- How it stands, without changing anything: what is due counts as ended, and is left to those who sweep.
-- ARGV: namespace
-- Returns {now, slots according to Python, {field, value, …}, {bucket, count, …}, held, holders, waiting, first arrival}
local totals = {}
for field, value in pairs(gate) do
    if type(value) == 'number' then
        totals[#totals + 1] = field
        totals[#totals + 1] = string.format('%.0f', value)
    end
end

local function live_in(key)
    return ipairs(call('ZRANGEBYSCORE', key, '(' .. string.format('%.17g', NOW), '+inf'))
end

-- Only the first in line may have been served a part of its weight, by Python's scripts. That is not to hold it yet.
local half_served = gate.id_of(call('ZRANGE', WAITING, 0, 0)[1] or '')
local slots_held, holders = 0, 0
for _, member in live_in(MAIN) do
    local ends = call('ZSCORE', TTL, gate.id_of(member))
    if not ends or tonumber(ends) > NOW then
        slots_held = slots_held + 1
        holders = holders + (gate.id_of(member) == member and member ~= half_served and 1 or 0)
    end
end

-- The members of a weight are side by side.
local waiting, last = 0
for _, member in live_in(BEATS) do
    local id = gate.id_of(member)
    waiting = waiting + (id ~= last and 1 or 0)
    last = id
end
return {
    NOW_TEXT,
    tonumber(call('GET', MAX) or 0),
    totals,
    call('HGETALL', TIMES),
    slots_held,
    holders,
    waiting,
    call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')[2] or '',
}
