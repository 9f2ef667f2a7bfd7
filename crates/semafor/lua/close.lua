-- Turns everybody in line away, and whoever comes later. Holders keep what they hold.
-- ARGV: namespace
-- Returns how many were turned away.
local turned_away = 0
gate.closed = 1
for _, id in ipairs(gate.ids_in_line()) do
    local record = gate.record_of(id)
    if record.is_ours then
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
