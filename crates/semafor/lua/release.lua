-- Gives back whatever an id has, a slot or a place in line, and serves those who wait. One trip.
-- ARGV: namespace, id, how: 'released', 'evicted' (by somebody else), 'cancelled' or 'timed_out' (no longer wanted),
--       1 if the process that holds it is another one, and has to be told
-- Returns {'ended' | 'left' | 'gone', how it ended, held, slots, waiting}; the last one only if it timed out.
local id, how = ARGV[2], ARGV[3]
local record = record_of(id)
local outcome, ending = 'gone', 0

if call('ZSCORE', MAIN, id) and parts_in(MAIN, id, record.weight) == record.weight then
    outcome = 'ended'
    if how == 'evicted' then
        end_grant(id, record, 'evicted', EVICTED)
    elseif how == 'released' then
        end_grant(id, record, 'released')
        if ARGV[4] == '1' then
            tell(id, 'lost', id, RELEASED)
        end
    else
        end_grant(id, record, 'handed_on')
    end
elseif call('ZSCORE', WAITING, member_of(id, record.weight - 1)) then
    outcome = 'left'
    leave_line(id, record)
    count(how == 'timed_out' and 'timed_out' or 'cancelled')
else
    ending = ending_of(id)
    if how == 'cancelled' or how == 'timed_out' then
        remember(id, UNWANTED)
    end
end

if not is_line_empty then
    serve()
end
save()
return { outcome, ending, held, gate.limit, how == 'timed_out' and line_length() or 0 }
