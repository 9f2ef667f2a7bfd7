-- Confirms a grant: asked by a waiter that was notified by somebody else's script, or mistrusts an old notice.
-- ARGV: namespace, id
-- Returns {'granted', slots, epoch, slot, token, waited, now}, {'waiting', now}, or {'gone', how it ended}.
local id = ARGV[2]
sweep()
local record = record_of(id)
if record.is_ours and parts_in(MAIN, id, record.weight) == record.weight then
    adopt(id, record)
    put(MAIN, id, record.weight, NOW + lease_of(record))
    call('DEL', notification_of(id))
    save()
    return {
        'granted', gate.limit, gate.epoch, record.slot, record.token, string.format('%.6f', record.waited), now_text(),
    }
end
save()
if call('ZSCORE', WAITING, member_of(id, record.weight - 1)) then
    return { 'waiting', now_text() }
end
return { 'gone', ending_of(id) }
