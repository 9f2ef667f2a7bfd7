-- Changes the number of slots. Holders keep theirs; waiters that want more than the new number are turned away.
-- ARGV: namespace, slots
-- Returns the number of slots before, 0 if the name did not exist.
call('ZREM', MAIN, '') -- so that a server out of memory accepts the other writes: see ping.lua
gate.repair()
local slots, before = tonumber(ARGV[2]), gate.slots
gate.slots = slots
call('SET', MAX, slots, 'KEEPTTL')
gate.keep_if_new(MAX, SPARE)
if slots < before and gate.line_extra > 0 then
    for _, id in ipairs(gate.ids_in_line()) do
        local record = gate.record_of(id)
        if record.weight > slots then
            gate.leave_line(id, record)
            gate.remember(id, TOO_HEAVY)
            gate.publish(id, 'too_heavy', id, record.weight, slots)
            gate.refused = gate.refused + 1
        end
    end
end
gate.serve()
gate.keep(SPARE)
gate.save()
return before
