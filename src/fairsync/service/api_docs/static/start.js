// Shows the OpenAPI document of this service. No validator of another host is asked.
SwaggerUIBundle({ url: "openapi.json", dom_id: "#api", deepLinking: true, validatorUrl: null });
