-- Changes the number of slots. Nobody loses one; who waits for more than there are is turned away.
-- ARGV: namespace, slots
-- Returns the number of slots before, 0 if there was no such name.
local slots, before = tonumber(ARGV[2]), gate.limit
gate.limit, gate.keep_until = slots, 0
if slots < before then
    for _, member in ipairs(call('ZRANGE', WAITING, 0, -1)) do
        local id = gate.id_of(member)
        local record = id == member and gate.record_of(id)
        if record and record.weight > slots then
            gate.leave_line(id, record)
            gate.remember(id, TOO_HEAVY)
            gate.tell(id, 'too_heavy', id, record.weight, slots)
            gate.refused = gate.refused + 1
        end
    end
end
gate.serve()
gate.keep(SPARE)
gate.save()
return before
