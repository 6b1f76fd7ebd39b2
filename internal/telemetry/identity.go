package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Identity is who sends.
type Identity struct {
	// Instance is service.instance.id, Version service.version; empty: unknown.
	Instance, Version string
}

func (i Identity) resource() *resource.Resource {
	all := []attribute.KeyValue{attribute.String("service.name", "hardpoint")}
	if i.Instance != "" {
		all = append(all, attribute.String("service.instance.id", i.Instance))
	}
	if i.Version != "" {
		all = append(all, attribute.String("service.version", i.Version))
	}
	return resource.NewSchemaless(all...)
}
