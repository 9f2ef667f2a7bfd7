-- Turns everybody in line away, and whoever comes later. Holders keep what they hold.
-- ARGV: namespace
-- Returns how many were turned away.
local turned_away = 0
set('closed', 1)
for _, member in ipairs(call('ZRANGE', WAITING, 0, -1)) do
    local id = id_of(member)
    local record = record_of(id)
    if record.is_ours then
        leave_line(id, record)
        remember(id, CLOSED)
        tell(id, 'closed', id)
        count('refused')
        turned_away = turned_away + 1
    end
end
save()
extend(INFO, KEPT * 1000)
return turned_away
