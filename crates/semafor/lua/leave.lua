-- Releases what several ids of one process have and do not want any more, one after the other, in one round trip.
-- ARGV: namespace, then for each id: id, how (as in release.lua), 1 if its request may still arrive once more
-- Returns {held, slots, waiting, outcome, how it ended, outcome, how it ended, …}

-- A server that is out of memory refuses a script whose first write may need memory. ZREM needs none, and once it has
-- run the server accepts the other writes. It runs only if there is something to release or to remember.
for i = 2, #ARGV, 3 do
    if ARGV[i + 2] == '1' or call('HEXISTS', RECORDS, ARGV[i]) == 1 then
        call('ZREM', MAIN, '')
        break
    end
end
gate.repair()
local answer = { 0, 0, 0 }
for i = 2, #ARGV, 3 do
    local outcome, ending = gate.end_id(ARGV[i], ARGV[i + 1], false, false, ARGV[i + 2] == '1')
    answer[#answer + 1] = outcome
    answer[#answer + 1] = ending
end
answer[1], answer[2], answer[3] = gate.held, gate.slots, gate.waiting()
gate.save()
return answer
