-- Closes the name: turns away all waiters, and every later acquire. Holders keep their slots. A long line takes several
-- calls, so that the server can answer other clients in between.
-- ARGV: namespace, the place in line to begin at: 0, then the one that the last call returned
-- Returns {how many were turned away, where the next call begins, or -1 if the whole line is done}.
local PAGE = 500 -- members
local place = tonumber(ARGV[2])
call('ZREM', MAIN, '') -- so that a server out of memory accepts the other writes: see ping.lua
gate.repair()
gate.closed = 1
local turned_away = 0
local members = call('ZRANGE', WAITING, place, place + PAGE - 1)
for _, member in ipairs(members) do
    local id = gate.id_of(member)
    local record = gate.record_of(id)
    if not record.is_ours then
        -- A waiter of Python's, which stays; or another part of a weight that has just left.
        place = place + (call('ZSCORE', WAITING, member) and 1 or 0)
    else
        gate.turn_away(id, record)
        turned_away = turned_away + 1
    end
end
gate.save()
gate.extend(INFO, KEPT)
return { turned_away, #members == PAGE and place or -1 }
