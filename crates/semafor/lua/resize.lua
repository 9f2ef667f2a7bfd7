-- Changes the number of slots. Nobody loses one; who waits for more than there are is turned away.
-- ARGV: namespace, slots
-- Returns the number of slots before, 0 if there was no such name.
local slots, before = tonumber(ARGV[2]), gate.limit
gate.limit, gate.keep_until = slots, 0
if slots < before then
    for _, id in ipairs(gate.ids_in_line()) do
        local record = gate.record_of(id)
        if record.weight > slots then
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
