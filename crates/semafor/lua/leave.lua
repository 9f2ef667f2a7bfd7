-- Gives back what several ids of one process have and do not want any more, one after the other. One trip for all.
-- ARGV: namespace, then for each id, how: as release.lua has it
-- Returns {held, slots, waiting, outcome, how it ended, outcome, how it ended, …}

-- A server without memory refuses the first write of a script if it may need some. This needs none, and lets the rest
-- through, if there is something to give back.
for i = 2, #ARGV, 2 do
    if call('HEXISTS', RECORDS, ARGV[i]) == 1 then
        call('ZREM', MAIN, '')
        break
    end
end
gate.mend()
local answer = { 0, 0, 0 }
for i = 2, #ARGV, 2 do
    local outcome, ending = gate.finish(ARGV[i], ARGV[i + 1], false, false)
    answer[#answer + 1] = outcome
    answer[#answer + 1] = ending
end
answer[1], answer[2], answer[3] = gate.held, gate.slots, gate.waiting()
gate.save()
return answer
