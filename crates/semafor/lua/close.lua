-- Turns everybody in line away, and whoever comes later. Holders keep what they hold.
-- ARGV: namespace
-- Returns how many were turned away.
local turned_away = 0
gate.closed = 1
for _, member in ipairs(call('ZRANGE', WAITING, 0, -1)) do
    local id = gate.id_of(member)
    local record = id == member and gate.record_of(id)
    if record and record.is_ours then
        gate.leave_line(id, record)
        gate.remember(id, CLOSED)
        gate.tell(id, 'closed', id)
        gate.refused = gate.refused + 1
        turned_away = turned_away + 1
    end
end
gate.save()
gate.extend(INFO, KEPT)
return turned_away
