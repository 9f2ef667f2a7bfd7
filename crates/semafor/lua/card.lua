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

local function count_live(key)
    local members, ids = 0, 0
    for _, member in ipairs(call('ZRANGEBYSCORE', key, '(' .. string.format('%.17g', NOW), '+inf')) do
        local id = gate.id_of(member)
        local ends = key == MAIN and call('ZSCORE', TTL, id)
        if not ends or tonumber(ends) > NOW then
            members = members + 1
            ids = ids + (id == member and 1 or 0)
        end
    end
    return members, ids
end

local slots_held, holders = count_live(MAIN)
local _, waiting = count_live(BEATS)
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
