import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonMappingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.introspect.Annotated;
import com.fasterxml.jackson.databind.introspect.JacksonAnnotationIntrospector;
import io.strimzi.api.kafka.model.topic.KafkaTopic;
import io.strimzi.api.kafka.model.user.KafkaUser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** Reads KafkaTopic and KafkaUser resources (JSON lines) from standard input by Strimzi's own classes; prints what is wrong, a line each. */
public final class Strimzi {
    private static final Map<String, Class<?>> KINDS = Map.of("KafkaTopic", KafkaTopic.class, "KafkaUser", KafkaUser.class);

    public static void main(String[] arguments) throws IOException {
        ObjectMapper mapper = new ObjectMapper();
        // The classes keep what they do not know for later versions; here that is a fault.
        mapper.setAnnotationIntrospector(new JacksonAnnotationIntrospector() {
            @Override
            public Boolean hasAnySetter(Annotated annotated) {
                return Boolean.FALSE;
            }
        });
        mapper.enable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode given = mapper.readTree(line);
            String kind = given.path("kind").asText();
            try {
                mapper.treeToValue(given, KINDS.get(kind));
            } catch (JsonMappingException error) {
                String said = error.getOriginalMessage().replaceAll("\\s+", " ");
                System.out.println(kind + " " + given.at("/metadata/name").asText() + ": " + said);
            }
        }
    }
}
