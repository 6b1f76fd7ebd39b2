package main

import "github.com/hardpointmq/hardpoint/sdk/serve"

func main() { serve.Main(serve.Storage(NewFactory())) }
