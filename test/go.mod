module github.com/hardpointmq/hardpoint/test

go 1.26.0

require github.com/hardpointmq/hardpoint v0.0.0

replace github.com/hardpointmq/hardpoint => ..
