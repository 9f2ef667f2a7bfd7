-- Changes the number of slots. Nobody loses one; who waits for more than there are is turned away.
-- ARGV: namespace, slots
-- Returns the number of slots before, 0 if there was no such name.
local slots, before = tonumber(ARGV[2]), gate.limit
set('limit', slots)
set('keep_until', 0)
if slots < before then
    local last
    for _, member in ipairs(call('ZRANGE', WAITING, 0, -1)) do
        local id = id_of(member)
        if id ~= last then
            last = id
            local record = record_of(id)
            if record.weight > slots then
                leave_line(id, record)
                remember(id, TOO_HEAVY)
                tell(id, 'too_heavy', id, record.weight, slots)
                count('refused')
            end
        end
    end
end
serve()
keep(SPARE)
save()
extend(INFO, KEPT * 1000)
return before
